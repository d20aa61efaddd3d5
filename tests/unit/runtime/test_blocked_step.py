"""Test a training step that hangs because its own task has rejected it. tfdeploy ends the step and
repeats it.
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from support.waiting import wait_for
from tfdeploy.runtime import blocked_step

ROOT = Path(__file__).resolve().parents[3]
REPORT = (
    b"E0000 00:00:1795693537.509134 2748 master_session.cc:580] RunStep still blocked after 60 "
    b"seconds."
    b" Failed with error status: ABORTED: From /job:worker/replica:0/task:0:\n"
    b"The same RunGraph (Worker) request was received twice. goo.gle/debugonly   "
    b'graph_handle: "0000000000000003" step_id: 492354 exec_opts { } session_handle: "55c5d6"'
    b" store_errors_in_response_body: true create_worker_session_called: true request_id: -453\n"
)
STEP = 492354
OTHER = (
    b"RunStep still blocked after 60 seconds. Failed with error status: UNAVAILABLE: Socket "
    b"closed\n"
)
SEED = """
#define _GNU_SOURCE
#include <dlfcn.h>
static volatile int threads = 0;  /* that draw the same seed, counted down */
void fix_seed(int count) { threads = count; }
unsigned _ZNSt13random_device9_M_getvalEv(void *self) {
  unsigned (*draw)(void *) = dlsym(RTLD_NEXT, "_ZNSt13random_device9_M_getvalEv");
  return __sync_sub_and_fetch(&threads, 1) >= 0 ? 7 : draw(self);
}
"""


@pytest.fixture(autouse=True)
def read_without_pauses(monkeypatch):
    monkeypatch.setattr(blocked_step, "POLL_S", 0.001)


def read(log, count):
    """Return a function that returns the next `count` reports of TensorFlow that are appended to
    the log file.

    Reports that are already in the file are left out.
    """
    reports = blocked_step.follow_step_ids(str(log))
    return lambda: list(itertools.islice(reports, count))


def append(log, *texts):
    with log.open("ab") as file:
        file.write(b"".join(texts))


def test_only_appended_reports_are_read(tmp_path):
    log = tmp_path / "out.log"
    append(log, REPORT.replace(b"492354", b"1"))
    lines = read(log, 2)
    append(log, b"step 1\n", OTHER, REPORT, b"x" * 3_000_000, REPORT.replace(b"492354", b"5"))
    assert lines() == [STEP, 5]


@pytest.mark.parametrize("cut", [10, 200, len(REPORT) - 30])
def test_report_may_span_two_reads(tmp_path, monkeypatch, cut):
    monkeypatch.setattr(blocked_step, "_CHUNK_BYTES", 20_000 + cut)
    log = tmp_path / "out.log"
    append(log)
    lines = read(log, 1)
    append(log, b"x" * 20_000, REPORT, b"y" * 20_000)
    assert lines() == [STEP]


def test_log_is_followed_to_next_segment(tmp_path):
    log = tmp_path / "out.log"
    append(log)
    lines = read(log, 2)
    append(log, REPORT)
    log.rename(tmp_path / "out.log.1")
    append(log, REPORT.replace(b"492354", b"6"))
    assert lines() == [STEP, 6]


def test_number_has_wire_format_of_protocol_buffers():
    assert blocked_step._encode_number(2, 300) == b"\x10\xac\x02"
    assert blocked_step._encode_number(1, 127) == b"\x08\x7f"


UNKNOWN_STEP = """
import sys
import tensorflow.compat.v1 as tf
sys.path.insert(0, {root!r})
from tfdeploy.runtime import blocked_step
server = tf.train.Server.create_local_server()
blocked_step.end_step(server.target.partition("://")[2], 4711)
with tf.Graph().as_default(), tf.Session(server.target) as session:
    print("alive", session.run(tf.constant(1)))
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_server_survives_end_of_unknown_step(run_python):
    done = run_python(UNKNOWN_STEP.format(root=str(ROOT)))
    assert done.stdout == "alive 1\n", done.stderr


@pytest.fixture
def seed_library(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "seed.c").write_text(SEED)
    library = tmp_path / "seed.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "seed.c", "-ldl"], check=True
    )
    return str(library)


@pytest.mark.long
@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_step_rejected_by_own_task_runs_once(start_cluster, seed_library):
    """Test the blocked step in two clusters: one without tfdeploy's patch and one with the patch.

    TensorFlow itself reports the blocked step only after two minutes.
    """
    without, patched = (start_cluster("async", workers=1) for _ in range(2))
    patched.folder /= "patched"
    patched.folder.mkdir()
    for cluster in (without, patched):
        log = "" if cluster is without else str(cluster.cwd("worker:0") / "log")
        cluster.start("ps:0", "blocked_step.py")
        cluster.start("worker:0", "blocked_step.py", LD_PRELOAD=seed_library, TFDEPLOY_TASK_LOG=log)
    wait_for(lambda: "RunStep still blocked" in without.log("worker:0"), 240, "TensorFlow's report")
    assert patched.ended("worker:0", within_s=60) == 0
    assert "before: 2.0\n" in patched.log("worker:0")
    assert "after: 3.0\n" in patched.log("worker:0")
    assert "after:" not in without.log("worker:0")
