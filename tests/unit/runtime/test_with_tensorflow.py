"""Test tfdeploy's patches of TensorFlow in real TensorFlow processes on loopback.

Each test fails without the patch that it tests (docs/decisions/0001).
"""

from __future__ import annotations

import importlib.util
import time

import pytest

from support.stopwatch import Stopwatch

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
    ),
]

ONE_PROCESS = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
server = tf.train.Server(
    {"ps": ["localhost:1"], "worker": ["localhost:0", "localhost:1"]},
    job_name="worker",
    task_index=0,
)
with tf.device("/job:ps/task:0"):
    a, b = tf.get_variable("a", []), tf.get_variable("b", [])
asked = tf.ConfigProto(allow_soft_placement=True)
used = tf.Session(server.target, config=asked)._config
print("filters", list(used.device_filters), used.allow_soft_placement, list(asked.device_filters))
print("none given", list(tf.Session(server.target)._config.device_filters))
own_config = tf.ConfigProto(device_filters=["/job:ps"])
print("its own", list(tf.Session(server.target, config=own_config)._config.device_filters))
print("local", list(tf.Session()._config.device_filters))
print("default saver", tf.train.Scaffold().finalize().saver.saver_def.sharded)
with tf.Graph().as_default() as graph:
    with tf.device("/job:worker/task:1"):
        tf.get_variable("elsewhere", [])
    print("elsewhere", list(tf.Session(server.target)._config.device_filters))
    with tf.device("/job:worker/task:0/gpu:0"):
        print("sharded saver", tf.train.Saver(sharded=True).saver_def.sharded)
    print("saves on", [op.device for op in graph.get_operations() if op.type == "SaveV2"])
"""


def test_patches_in_one_process(run_python):
    done = run_python(ONE_PROCESS)
    assert done.stdout.splitlines() == [
        "filters ['/job:ps', '/job:worker/task:0'] True []",
        "none given ['/job:ps', '/job:worker/task:0']",
        "its own ['/job:ps']",
        "local []",
        "default saver False",
        "elsewhere []",
        "sharded saver False",
        "saves on ['']",
    ], done.stderr
    assert [line[:34] for line in done.stderr.splitlines() if line.startswith("tfdeploy:")] == [
        "tfdeploy: Saver(sharded=True) woul"
    ]


FLAGS_OF_ABSL = """
import tensorflow.compat.v1 as tf
tf.app.flags.DEFINE_string("log_dir", "checkpoints", "defined by absl too")
tf.app.flags.DEFINE_bool("pdb", True, "defined by absl too")
tf.app.run(
    lambda _: print(tf.app.flags.FLAGS.log_dir), argv=["train.py", "--log_dir=mine", "--nopdb"]
)
"""


def test_program_that_uses_compat_v1_may_define_flags_of_absl(run_python):
    done = run_python(FLAGS_OF_ABSL, TFDEPLOY_TASK_COMPAT="none")
    assert done.stdout == "mine\n", done.stderr


PS_THAT_WAITS = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
server = tf.train.Server(
    {"ps": ["localhost:0"], "worker": ["localhost:1"]}, job_name="ps", task_index=0
)
with tf.Session(server.target) as session:
    with tf.device("/job:ps/task:0"):
        done = tf.FIFOQueue(1, tf.int32, shared_name="done_queue0")
    session.run(done.enqueue(1))
    print("done:", session.run(done.dequeue()), flush=True)
import os; os._exit(0)
"""


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_ps_with_own_session_connects_to_no_worker(run_python, mode):
    """Test that a ps which opens a session of its own does not wait for the workers.

    Without the patch, the ps tries to connect before the workers listen, and pauses before it tries
    again. A worker whose first step falls into this pause dies.
    """
    done = run_python(PS_THAT_WAITS, task="ps:0", mode=mode)
    assert done.stdout == "done: 1\n", done.stderr


# This test checks the two behaviours that its name states. test_main_job.py also tests both on
# separate hosts.
@pytest.mark.long
def test_checkpoints_without_shared_disk_and_with_late_worker(start_cluster):
    cluster = start_cluster("async", ps=2)
    for task in ("ps:0", "ps:1", "worker:0"):
        cluster.start(task, "monitored_async.py", "--steps=100")
    assert cluster.ended("worker:0") == 0, cluster.log("worker:0")
    saved = {path.name for path in (cluster.cwd("worker:0") / "checkpoints").iterdir()}
    assert {"checkpoint", "model.ckpt-100.index", "model.ckpt-100.data-00000-of-00001"} <= saved
    assert not (cluster.cwd("ps:0") / "checkpoints").exists()

    cluster.start("worker:1", "monitored_async.py", "--steps=100")
    assert cluster.ended("worker:1") == 0, cluster.log("worker:1")
    assert "starting at step 10" in cluster.log("worker:1")


# test_main_job.py also tests this on separate hosts. The next test checks that the worker ends.
@pytest.mark.long
@pytest.mark.parametrize("program", ["sync_supervisor.py", "sync_monitored.py"])
def test_synchronous_chief_and_worker_end_soon_after_last_step(start_cluster, program):
    cluster, watch = start_cluster("sync"), Stopwatch()
    for task, steps in (("ps:0", 50), ("worker:0", 50), ("worker:1", 100000)):
        cluster.start(task, program, f"--steps={steps}")
    assert cluster.ended("worker:0") == 0, cluster.log("worker:0")
    ended, slowdown = time.time(), watch.slowdown
    last = [line for line in cluster.log("worker:0").splitlines() if line.startswith("last step")]
    assert (ended - float(last[-1].split()[-1])) / slowdown < 15
    assert cluster.ended("worker:1", within_s=15) == 0, cluster.log("worker:1")


def test_synchronous_worker_ends_if_chief_leaves_it_waiting_for_tokens(start_cluster):
    """Test a worker that still waits for the chief when the chief ends without `sv.stop()`.

    Without the patch, the worker would wait until the setting finish.grace ends it.
    """
    cluster = start_cluster("sync")
    cluster.start("ps:0", "sync_supervisor.py", "--stop=0")
    for task in ("worker:0", "worker:1"):
        cluster.start(task, "sync_supervisor.py", "--steps=50", "--stop=0", "--more=100000")
    assert cluster.ended("worker:0") == 0, cluster.log("worker:0")
    # On a host, the minder (the process that watches the run) creates this file. It does so once
    # the deciding tasks, whose results are the result of the run, have succeeded.
    (cluster.cwd("worker:1") / "decided").touch()
    assert cluster.ended("worker:1", within_s=20) == 0, cluster.log("worker:1")
    assert "tfdeploy: the chief has finished, so this worker gets no more tokens" in cluster.log(
        "worker:1"
    )
