"""Test what a host reports in a probe: programs, ports and the processes that use them, `keep`
folders, names, and facts about the machine.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import ports
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import disk, installed
from tfdeploy.agent.host.network import free_ports, hosts_file, sockets
from tfdeploy.agent.run import keep_folders
from tfdeploy.agent.serve import probe, server
from tfdeploy.model.answers.failures import Failure
from tfdeploy.model.facts import HostFacts
from tfdeploy.text.typed import convert_untrusted


def facts(workdir: Path, **args: Any) -> dict[str, Any]:
    given = dict({"python": sys.executable, "ports": [1, 0], "gpus": "auto"}, **args)
    return probe.probe_host(Call(SessionContext(str(workdir), ""), given))


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def path_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % (tmp_path / "bin"))
    yield tmp_path / "bin"


def test_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    host_facts = facts(tmp_path)
    assert host_facts["hostname"] == os.uname().nodename and host_facts[
        "home"
    ] == os.path.expanduser("~")
    assert host_facts["ssh_server_address"] == "192.0.2.2" and "http_proxy" in host_facts["proxies"]
    assert host_facts["cores"] >= 1 and host_facts["free_disk_bytes"] > 0
    assert abs(host_facts["clock"] - time.time()) < 60
    assert host_facts["python"] == sys.executable and host_facts["python_version"] == ".".join(
        map(str, sys.version_info[:3])
    )


def test_a_program_is_on_path_or_beside_the_interpreter(tmp_path: Path, path_with: Path) -> None:
    program(path_with, "trainer", "exit 0")
    beside = Path(sys.executable).name
    lacks = [
        facts(tmp_path, program=name)["lacks_program"] for name in ("trainer", "pyhton", beside)
    ]
    assert lacks == [False, True, False] and not facts(tmp_path)["lacks_program"]


def test_its_answer_is_what_the_control_side_expects(tmp_path: Path) -> None:
    msgspec = pytest.importorskip("msgspec")
    from tfdeploy.model.facts import HostFacts

    answer = msgspec.convert(
        dict(facts(tmp_path, job="job", keep=["checkpoints"]), host="n1"), HostFacts
    )
    assert answer.workdir == str(tmp_path)
    assert set(facts(tmp_path)) == set(HostFacts.__dataclass_fields__) - {"host", "clock_skew_s"}


@pytest.mark.parametrize(
    "name, version",
    [
        ("tensorflow-2.21.0.dist-info", "2.21.0"),
        ("tensorflow_cpu-2.16.1.dist-info", "2.16.1"),
        ("tensorflow-1.15.0-py3.7.egg-info", "1.15.0"),
        ("nvidia_tensorflow-1.15.5+nv23.3.dist-info", "1.15.5+nv23.3"),
        ("tensorflow", "unknown"),
        ("tensorflow_datasets-4.9.dist-info", None),
        ("tensorflow_io_gcs_filesystem-0.3.dist-info", None),
        ("tf_keras-2.21.0.dist-info", None),
    ],
)
def test_tensorflow_is_found_without_importing_it(
    tmp_path: Path, path_with: Path, name: str, version: str
) -> None:
    site = tmp_path / "site"
    (site / name).mkdir(parents=True)
    (site / "tensorflow.py").write_text("raise SystemExit('imported')")
    program(path_with, "python9", f'PYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    host_facts = facts(tmp_path, python="python9")
    assert (host_facts["python"], host_facts["tensorflow"]) == (str(path_with / "python9"), version)


def test_tf_keras_is_found_too(tmp_path: Path, path_with: Path) -> None:
    for name in (
        "tensorflow-2.21.0.dist-info",
        "tf_keras-2.20.1.dist-info",
        "tf_keras_extra-1.0.dist-info",
    ):
        (tmp_path / "site" / name).mkdir(parents=True)
    program(path_with, "python9", f'PYTHONPATH={tmp_path}/site exec {sys.executable} -S "$@"\n')
    host_facts = facts(tmp_path, python="python9")
    assert (host_facts["tensorflow"], host_facts["tf_keras"]) == ("2.21.0", "2.20.1")


def test_which_modules_the_interpreter_finds_without_importing_them(
    tmp_path: Path, path_with: Path
) -> None:
    site = tmp_path / "site"
    (site / "spread" / "inner").mkdir(parents=True)
    (site / "numpy-2.4.6.dist-info").mkdir()
    (site / "pandas.py").write_text("raise SystemExit('imported')")
    program(path_with, "python9", f'PYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    asked = [
        "json",
        "math",
        "sys",
        "__main__",
        "pandas",
        "spread",
        "retrying",
        "tmp",
        "imp; import os",
    ]
    host_facts = facts(tmp_path, python="python9", modules=asked)
    lacking = [name for name, is_present in host_facts["modules"].items() if not is_present]
    assert (lacking, list(host_facts["modules"]), host_facts["numpy"]) == (
        ["retrying", "tmp", "imp; import os"],
        asked,
        "2.4.6",
    )
    assert facts(tmp_path, python="python9")["modules"] == {}


def test_an_interpreter_that_cannot_say_which_modules_it_finds_says_nothing(
    tmp_path: Path, path_with: Path
) -> None:
    (tmp_path / "site" / "importlib").mkdir(parents=True)
    # The package importlib of this interpreter has no module util, as in Python 2.
    (tmp_path / "site" / "importlib" / "__init__.py").write_text("")
    program(path_with, "python9", f'PYTHONPATH={tmp_path}/site exec {sys.executable} -S "$@"\n')
    host_facts = facts(tmp_path, python="python9", modules=["json", "pandas"])
    assert host_facts["python"] and host_facts["modules"] == {}


def test_variables_that_the_plan_sets_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TF_CONFIG", "")
    assert facts(tmp_path)["preset"] == ["TF_CONFIG"]


@pytest.mark.parametrize("name", ["~/bin/py", "bin/py"])
def test_the_interpreter_may_be_named_from_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "py").symlink_to(sys.executable)
    assert facts(tmp_path, python=name)["python"] == str(tmp_path / "bin" / "py")


def test_an_interpreter_that_is_missing_or_none_is_a_problem_in_words(
    tmp_path: Path, path_with: Path
) -> None:
    program(path_with, "liar", "echo cannot load libpython >&2; exit 3\n")
    for name, problem in (("nowhere", "no program nowhere"), ("liar", "cannot load libpython")):
        host_facts = facts(tmp_path, python=name)
        assert host_facts["python"] is None and problem in host_facts["problems"][-1]


def test_gpus(tmp_path: Path, path_with: Path) -> None:
    first, second = (
        f"{index}, GPU-1{index}, NVIDIA Something, 81559, {used}"
        for index, used in ((1, "[N/A]"), (0, "5"))
    )
    program(path_with, "nvidia-smi", f"echo '{first}'; echo '{second}'\n")
    host_facts = facts(tmp_path)
    assert [(g["index"], g["uuid"], g["used_mib"]) for g in host_facts["gpus"]] == [
        (0, "GPU-10", 5),
        (1, "GPU-11", 0),
    ]
    assert host_facts["gpus"][0]["name"] == "NVIDIA Something" and host_facts["gpu_error"] is None
    assert facts(tmp_path, gpus="none")["gpus"] == []
    for given in (2, [1], [0, 1]):  # the inventory allows all these forms
        assert len(facts(tmp_path, gpus=given)["gpus"]) == 2
    for text in ("echo 'Driver/library version mismatch'; exit 18\n", "echo garbage\n"):
        program(path_with, "nvidia-smi", text)
        host_facts = facts(tmp_path)
        assert host_facts["gpus"] == [] and host_facts["gpu_error"]


CARDS = [
    # Each row is a pair: what a driver prints (name, memory and used memory in MiB), and what the
    # agent reads from this. Drivers of different years print different forms.
    ("GeForce GTX TITAN X, 12206, 802", ("GeForce GTX TITAN X", 12206, 802)),
    ("Tesla V100-SXM2-16GB, 16384, 5", ("Tesla V100-SXM2-16GB", 16384, 5)),
    ("NVIDIA GeForce RTX 3080, 20480, 18307", ("NVIDIA GeForce RTX 3080", 20480, 18307)),
    ("NVIDIA H100L-2-24C, 24576, [N/A]", ("NVIDIA H100L-2-24C", 24576, 0)),
    (
        "NVIDIA A100-SXM4-80GB, [Insufficient Permissions], [Insufficient Permissions]",
        ("NVIDIA A100-SXM4-80GB", 0, 0),
    ),
    ("Quadro K2000, [Not Supported], [Not Supported]", ("Quadro K2000", 0, 0)),
    ("Some Card, with a comma, 8192, 1", ("Some Card, with a comma", 8192, 1)),
]


@pytest.mark.parametrize("line, expected", CARDS)
def test_cards_are_read_as_the_driver_writes_them(
    tmp_path: Path, path_with: Path, line: str, expected: Any
) -> None:
    program(
        path_with, "nvidia-smi", f"echo '0, GPU-004f693d-767b-b215-b4a9-a18af0ffd643, {line}'\n"
    )
    (gpu,) = facts(tmp_path)["gpus"]
    assert (gpu["name"], gpu["memory_mib"], gpu["used_mib"]) == expected
    assert (gpu["index"], gpu["uuid"]) == (0, "GPU-004f693d-767b-b215-b4a9-a18af0ffd643")


def test_without_nvidia_smi_or_rsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    host_facts = facts(tmp_path)
    assert (host_facts["gpus"], host_facts["gpu_error"], host_facts["rsync"]) == ([], None, None)


def bound(family: int, listen: bool, reuse: list[int], address: str = "") -> socket.socket:
    one = socket.socket(family)
    for option in reuse:
        one.setsockopt(socket.SOL_SOCKET, option, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind((address, ports.free_ports(1)[0]))
    if listen:
        one.listen(1)
    return one


@pytest.mark.parametrize(
    "family, listen, reuse, address",
    [
        (socket.AF_INET, True, [socket.SO_REUSEADDR], ""),
        (socket.AF_INET, True, [socket.SO_REUSEPORT, socket.SO_REUSEADDR], "127.0.0.1"),
        (socket.AF_INET, False, [socket.SO_REUSEPORT], ""),
        (socket.AF_INET, False, [], ""),
        (socket.AF_INET, False, [socket.SO_REUSEADDR], ""),
        (socket.AF_INET6, True, [], ""),
    ],
)
def test_a_taken_port_is_seen_and_named(
    tmp_path: Path, family: int, listen: bool, reuse: list[int], address: str
) -> None:
    try:
        holder = bound(family, listen, reuse, address)
    except OSError:
        pytest.skip("no IPv6 here")
    with holder:
        port = holder.getsockname()[1]
        host_facts = facts(tmp_path, ports=[port, port])
        assert host_facts["free_ports"] == []
        owner = host_facts["taken_ports"][str(port)]
        assert owner.startswith(f"pid {os.getpid()}: ") if listen else owner == "unknown"
        assert free_ports.scan_ports(port, port, {port: "the mesh of run r"})[1] == {
            str(port): "the mesh of run r"
        }
    assert facts(tmp_path, ports=[port, port])["free_ports"] == [port]


@pytest.mark.parametrize(
    "reuse, free",
    [
        ([socket.SO_REUSEPORT, socket.SO_REUSEADDR], True),
        ([socket.SO_REUSEADDR], True),
        ([], False),
    ],
)
def test_a_port_that_only_waits_out_its_last_connection(reuse: list[int], free: bool) -> None:
    """A port in TIME_WAIT counts as free if its server set SO_REUSEADDR, as TensorFlow and tfdeploy
    do. Otherwise the port counts as taken, because tfdeploy could not bind it for the next run.
    """
    with bound(socket.AF_INET, True, reuse) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = server.accept()
            served.close()
            assert client.recv(1) == b""
    assert free_ports.is_free(port) is free
    if free:
        sockets.hold_port(port).close()


@pytest.mark.parametrize("ports", ["2222", [1], [1, "x"], None])
def test_bad_ranges(tmp_path: Path, ports: Any) -> None:
    if ports is None:
        assert facts(tmp_path, ports=None)["free_ports"] == []
        return
    with pytest.raises(VerbError):
        facts(tmp_path, ports=ports)


def test_keep_folders(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "keep" / "out" / "checkpoints"
    assert keep_folders.describe_keep_folders(str(tmp_path), "job", ["out/checkpoints"]) == []
    (folder / "deep").mkdir(parents=True)
    assert keep_folders.describe_keep_folders(str(tmp_path), "job", ["out/checkpoints"]) == []
    text = (
        'model_checkpoint_path: "/some/where/model.ckpt-%d"\nall_model_checkpoint_paths: '
        '"model.ckpt-1"\n'
    )
    for path, step, when in (
        (folder / "checkpoint", 1200, 2000),
        (folder / "deep" / "checkpoint", 7, 1000),
    ):
        path.write_text(text % step)
        os.utime(path, (when, when))
    (folder / "model.ckpt-1200.index").write_text("")
    os.utime(folder / "model.ckpt-1200.index", (3000, 3000))
    list_keep_rows = facts(tmp_path, job="job", keep=["out/checkpoints", "nothing"])["keep"]
    expected = {
        "path": "out/checkpoints",
        "newest": 3000.0,
        "checkpoint": "model.ckpt-1200",
        "step": 1200,
        "recorded": 2000.0,
    }
    expected |= {
        "files": 3,
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }
    assert list_keep_rows == [expected]
    (folder / "workertemp_1").mkdir()
    # A worker that is not the chief writes its checkpoint record into this folder. No program reads
    # this record.
    (folder / "workertemp_1" / "checkpoint").write_text(text % 9999)
    assert facts(tmp_path, job="job", keep=["out/checkpoints"])["keep"] == [expected]
    for path in ("../x", "/etc", "", "a/../../b"):
        with pytest.raises(VerbError):
            keep_folders.describe_keep_folders(str(tmp_path), "job", [path])


@pytest.mark.parametrize(
    ("name", "step"), [(f"model.ckpt-{1 << 53}", 1 << 53), ("model.ckpt-1795250000000000000", None)]
)
def test_a_checkpoint_may_be_named_by_the_time(name: str, step: int | None, tmp_path: Path) -> None:
    folder = tmp_path / "job" / "keep" / "out"
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"')
    list_keep_rows = facts(tmp_path, job="job", keep=["out"])
    assert (list_keep_rows["keep"][0]["checkpoint"], list_keep_rows["keep"][0]["step"]) == (
        name,
        step,
    )
    assert convert_untrusted({**list_keep_rows, "free_ports": []}, HostFacts).keep[0].step == step


@pytest.mark.parametrize("free", [(1 << 63) - (1 << 20), 1 << 63, (1 << 64) - 1])
def test_a_disk_may_be_very_large(
    free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems report huge sizes: EFS reports 8 EiB, and s3fs 16 EiB."""
    disk_stat = SimpleNamespace(f_bavail=free, f_frsize=1, f_favail=free, f_files=free)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda path: disk_stat)
        host_facts = convert_untrusted(facts(tmp_path), HostFacts)
        no = convert_untrusted(
            server.failure_answer(OSError(errno.ENOSPC, "x", str(tmp_path))), Failure
        )
    assert (
        host_facts.free_disk_bytes
        == host_facts.free_inodes
        == no.details["free_bytes"]
        == min(free, disk.MOST_FREE)
    )


def test_a_full_disk_is_named_by_its_folder_and_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=0, f_frsize=4096, f_favail=9, f_files=99)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    nameless = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (
        server.failure_answer(nameless, str(tmp_path))["what"]
        == f"no space left in {tmp_path} (0 B free)"
    )
    full.f_favail = 0
    named = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "x"))
    assert server.failure_answer(named, "/w")[
        "what"
    ] == "%s: No space left on device (no inodes free)" % (tmp_path / "x")


def test_names_that_mean_this_machine_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(
        "# all\n127.0.0.1 localhost\n127.0.1.1\tN1.example.org n1 # debian\n::1 six\n192.0.2.7 "
        "both\n127.0.1.1 both\nx\n"
    )
    names = ["n1", "n1.Example.org", "n2", "both", "six", "127.0.0.1"]
    monkeypatch.setattr(hosts_file, "HOSTS_FILE", str(hosts))
    assert hosts_file.find_names_on_loopback(names) == ["n1", "n1.Example.org", "six"]
    monkeypatch.setattr(hosts_file, "HOSTS_FILE", str(tmp_path / "none"))
    assert hosts_file.find_names_on_loopback(names) == []


def test_problems_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts(tmp_path)["problems"] == []
    assert "does not exist" in facts(tmp_path / "missing")["problems"][0]
    monkeypatch.setattr(probe, "free_space", lambda path: disk.FreeSpace(1 << 20, 3))
    found = facts(tmp_path)
    # These are facts, so the rules of `check` judge them.
    assert (found["free_disk_bytes"], found["free_inodes"], found["problems"]) == (1 << 20, 3, [])


def test_a_program_asked_in_vain_is_not_waited_for_by_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "TIMEOUT_S", 2.0)
    pid_file = tmp_path / "pid"
    question = installed.StartedProgram(
        ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; exec sleep 60"]
    )
    code, _, words = question.read_output()
    child = int(pid_file.read_text())
    # The child is still alive, because the call did not wait for the end of the child.
    os.kill(child, signal.SIGKILL)
    assert code is None and "no answer within" in words
