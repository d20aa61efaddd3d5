"""The labs themselves: what they are made of, how they break on demand, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commandline import PATH, REPOSITORY
from conditions import need_root, wait_for

from tfdeploy import lab
from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.lab import Lab, processes

Ssh = Callable[..., subprocess.CompletedProcess[str]]
KINDS = ("loopback", "isolated")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.fixture(params=KINDS)
def a_lab(request: pytest.FixtureRequest) -> Lab:
    found: Lab = request.getfixturevalue(f"{request.param}_lab")
    return found


def outcome(where: Lab, host: str, *words: str, root: bool = False) -> str:
    done = subprocess.run(where.on(host, words, root=root), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of labs of its own, so that a test sees what is left in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state/tfdeploy/lab"
    for name in lab.names():
        lab.load(name).down()


def left_of(root: Path) -> tuple[set[int], list[str], list[str]]:
    """Processes, mounts (seen from any process) and files of a lab."""
    mounts = [path.parent.name for path in Path("/proc").glob("[0-9]*/mountinfo") if str(root) in _text(path)]
    files = [str(path) for path in root.rglob("*")] if root.exists() else []
    return processes.marked(str(root)), mounts, files


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_ssh_reaches_each_host_with_its_own_home(a_lab: Lab, ssh: Ssh) -> None:
    homes = set()
    for host in a_lab.hosts:
        done = ssh(a_lab, host, 'cd && pwd -P && echo "$HOME" && command -v rsync')
        assert done.returncode == 0, done.stderr
        here, home, _rsync = done.stdout.split()
        assert here == os.path.realpath(home)
        assert outcome(a_lab, host, "pwd", "-P") == here
        homes.add((host if a_lab.kind == "isolated" else "", home))
    assert len(homes) == len(a_lab.hosts)


def test_the_inventorys_interpreter_runs_on_the_hosts(a_lab: Lab, ssh: Ssh) -> None:
    done = ssh(a_lab, "n2", f"{sys.executable} -c 'import yaml, sys; print(sys.prefix)'")
    assert done.stdout.strip() == sys.prefix, done.stderr


def test_host_keys_differ(a_lab: Lab) -> None:
    keys = [line.split()[2] for line in a_lab.known_hosts.read_text().splitlines()]
    assert len(set(keys)) == len(a_lab.hosts)


def test_up_again_changes_nothing_and_another_shape_is_refused(a_lab: Lab) -> None:
    before = a_lab.status()
    again = lab.up(a_lab.name, a_lab.kind, len(a_lab.hosts))
    assert again.status() == before
    with pytest.raises(UsageError) as refused:
        lab.up(a_lab.name, a_lab.kind, len(a_lab.hosts) + 1)
    assert refused.value.next == f"tfdeploy lab down --name {a_lab.name}"


def test_kill_leaves_no_process_and_boot_keeps_the_disk(a_lab: Lab, ssh: Ssh) -> None:
    escape = "echo kept > ~/kept; env -i setsid sleep 987654 < /dev/null > /dev/null 2>&1 & echo $!"
    pid = ssh(a_lab, "n3", escape).stdout.strip()
    assert pid
    a_lab.kill("n3")
    assert [row["state"] for row in a_lab.status()].count("off") == 1
    assert ssh(a_lab, "n3", "true", timeout_s=1).returncode == 255
    a_lab.boot("n3")
    assert ssh(a_lab, "n3", "cat ~/kept").stdout == "kept\n"
    assert "987654" not in ssh(a_lab, "n3", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; true").stdout


@pytest.mark.isolated
def test_every_boot_of_a_host_has_an_id_of_its_own(isolated_lab: Lab, ssh: Ssh) -> None:
    def boot_of(host: str) -> str:
        told = {ssh(isolated_lab, host, f"cat {BOOT_ID}").stdout.strip(), outcome(isolated_lab, host, "cat", BOOT_ID).strip()}
        (one,) = told
        return str(uuid.UUID(one))

    first, other = boot_of("n3"), boot_of("n4")
    isolated_lab.kill("n3")
    isolated_lab.boot("n3")
    assert len({first, other, boot_of("n3"), _text(Path(BOOT_ID)).strip()}) == 4
    assert boot_of("n4") == other


def test_loopback_refuses_to_cut(loopback_lab: Lab) -> None:
    with pytest.raises(UsageError, match="no cable"):
        loopback_lab.cut("n1")
    with pytest.raises(UsageError, match="no host 'n9'"):
        loopback_lab.kill("n9")


def test_loopback_hosts_have_ports_of_their_own(loopback_lab: Lab) -> None:
    text = loopback_lab.inventory.read_text()
    ranges = [line.split("ports: ")[1].rstrip("}") for line in text.splitlines() if "ports: " in line]
    taken = [port for each in ranges for port in range(int(each.split("-")[0]), int(each.split("-")[1]) + 1)]
    assert len(taken) == len(set(taken)) == 10 * len(loopback_lab.hosts)
    with socket.socket() as tensorflow:
        tensorflow.bind(("", taken[0]))


@pytest.mark.isolated
def test_cut_and_heal_and_a_cut_outlives_a_reboot(isolated_lab: Lab, ssh: Ssh) -> None:
    isolated_lab.cut("n4")
    assert ssh(isolated_lab, "n4", "true", timeout_s=1).returncode == 255
    isolated_lab.kill("n4")
    isolated_lab.boot("n4")
    assert isolated_lab.status()[3]["state"] == "cut"
    assert ssh(isolated_lab, "n4", "true", timeout_s=1).returncode == 255
    isolated_lab.heal("n4")
    wait_for(lambda: ssh(isolated_lab, "n4", "true").returncode == 0, 10, "n4 is back")


@pytest.mark.isolated
def test_a_killed_host_says_nothing_to_its_peers(isolated_lab: Lab, ssh: Ssh) -> None:
    """A process that is killed closes its connections; a power cut does not."""
    settings = ["-F", "none", "-i", str(isolated_lab.root / "id_ed25519"), "-o", f"UserKnownHostsFile={isolated_lab.known_hosts}"]
    address = str(isolated_lab.status()[1]["address"])
    words = isolated_lab.operator(["ssh", *settings, f"lab@{address}", "echo here; exec sleep 1000"])
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert client.stdout and client.stdout.readline() == b"here\n"
        isolated_lab.kill("n2")
        isolated_lab.boot("n2")
        assert client.poll() is None
        client.kill()


@pytest.mark.isolated
def test_nothing_leaks_out(isolated_lab: Lab) -> None:
    for words in (isolated_lab.operator(["ip", "route"]), isolated_lab.on("n1", ["ip", "route"])):
        routes = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
        assert len(routes) == 1 and "default" not in routes[0]
    assert outcome(isolated_lab, "n1", "hostname") == "n1"
    assert outcome(isolated_lab, "n1", "id", "-un") == "lab"
    own = {Path(path).parts[2] for path in (sys.prefix, sys.base_prefix) if Path(path).parts[1] in ("tmp", "root", "home")}
    seen = outcome(isolated_lab, "n1", "sh", "-c", "ls -A /tmp; ls -A ~root; ls /home").split()
    assert set(seen) <= own | {"lab"}, "of this machine only the way to the interpreter"
    outcome(isolated_lab, "n1", "sh", "-c", "echo x > /etc/only-here; echo y > /tmp/only-here", root=True)
    assert not Path("/etc/only-here").exists() and not Path("/tmp/only-here").exists()
    environment = outcome(isolated_lab, "n1", "sh", "-c", f"echo x > {sys.prefix}/x 2>&1; true", root=True)
    assert not Path(sys.prefix, "x").exists(), environment


@pytest.mark.isolated
def test_a_host_has_no_zombies(isolated_lab: Lab, ssh: Ssh) -> None:
    ssh(isolated_lab, "n1", "for i in 1 2 3; do (sh -c 'sleep 0.01 &' ) ; done")
    zombies = "grep -h '^State:.Z' /proc/[0-9]*/status; true"
    wait_for(lambda: outcome(isolated_lab, "n1", "sh", "-c", zombies) == "", 10, "orphans are reaped")


@pytest.mark.isolated
@pytest.mark.parametrize("place", ["/root", "/home", "/tmp", "/var/tmp"])
def test_an_environment_anywhere_runs_on_a_host(place: str, alone: Path, ssh: Ssh) -> None:
    need_root()
    with tempfile.TemporaryDirectory(dir=place) as folder:
        Path(folder).chmod(0o700)
        environment = Path(folder, "clone/.venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60)
        python = str(environment / "bin/python")
        fresh = lab.up("anywhere", "isolated", 1, python=python)
        done = ssh(fresh, "n1", f"{python} -c 'import sys, ssl; print(sys.prefix)'")
        assert done.stdout.strip() == str(environment), done.stderr


@pytest.mark.isolated
def test_a_link_has_its_rate(new_lab: Callable[..., Lab], ssh: Ssh) -> None:
    shaped = new_lab("isolated", 2, rate="80mbit", shared_workdir=True)
    for words in (shaped.on("n1", ["tc", "qdisc", "show", "dev", "eth0"]),):
        text = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout
        assert "tbf" in text and "80Mbit" in text
    ssh(shaped, "n1", "echo from-n1 > ~/tfdeploy/x")
    assert ssh(shaped, "n2", "cat ~/tfdeploy/x").stdout == "from-n1\n"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_after_down(kind: str, alone: Path, need: None, ssh: Ssh) -> None:
    first, second = lab.up("one", kind, 2), lab.up("two", kind, 2)  # two at once
    ssh(first, "n1", "setsid sleep 1000 < /dev/null > /dev/null 2>&1 &")
    idle = subprocess.Popen(first.operator(["sleep", "1000"]))
    first.down()
    if kind == "loopback":
        idle.kill()
    assert idle.wait(timeout=10) != 0
    assert left_of(alone / "one") == (set(), [], [])
    assert [row["state"] for row in second.status()] == ["up", "up"]
    assert ssh(second, "n2", "true").returncode == 0
    second.down()
    assert left_of(alone) == (set(), [], [])


@pytest.mark.parametrize("kind", KINDS)
def test_up_killed_half_way_is_mended_or_removed(kind: str, alone: Path, tmp_path: Path, need: None, ssh: Ssh) -> None:
    words = [sys.executable, "-m", "tfdeploy", "lab", "up", "12", "--kind", kind, "--name", "torn"]
    environment = {"PATH": PATH, "PYTHONPATH": str(REPOSITORY), "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    for attempt in range(2):
        upping = subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_for(lambda: len(processes.marked(str(alone / "torn"))) > 3, 20, "some hosts are coming up")
        for pid in [upping.pid, *processes.with_descendants([upping.pid])]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        upping.wait()
        if attempt == 0:
            mended = lab.up("torn", kind, 12)
            assert ssh(mended, "n12", "true").returncode == 0
        lab.load("torn").down()
        assert left_of(alone) == (set(), [], [])


@pytest.mark.parametrize("kind", KINDS)
def test_down_finds_a_lab_whose_folder_is_gone(kind: str, alone: Path, need: None) -> None:
    lab.up("bare", kind, 2)
    shutil.rmtree(alone / "bare")
    lab.down("bare")
    assert left_of(alone) == (set(), [], [])
    with pytest.raises(UsageError, match="no lab 'bare'"):
        lab.down("bare")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", ["first process", "sshd"])
def test_up_starts_what_died(kind: str, victim: str, alone: Path, need: None, ssh: Ssh) -> None:
    fresh = lab.up("mortal", kind, 2)
    first = fresh.status()
    pid = int(str(first[0]["pid"]))
    if victim == "sshd":
        (pid,) = processes.with_descendants([pid]) - {pid}
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: processes.identify(pid) is None, 5, "it is dead")
    if victim == "sshd" and kind == "isolated":
        wait_for(lambda: fresh.status()[0]["state"] == "off", 5, "the host ends with its sshd")
    again = lab.up("mortal", kind, 2)
    assert ssh(again, "n1", "true").returncode == 0
    assert again.status()[1] == first[1]


def test_the_command_line(tmp_path: Path) -> None:
    environment = {"PATH": PATH, "PYTHONPATH": str(REPOSITORY), "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def call(*words: str) -> tuple[int, str, str]:
        argv = [sys.executable, "-m", "tfdeploy", "lab", *words]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    try:
        code, out, err = call("up", "2", "--name", "cli")
        assert code == 0, err
        assert Path(out.strip()).read_text().startswith("# The lab 'cli'")
        answer: dict[str, Any] = json.loads(call("status", "--name", "cli", "--json")[1])
        assert [row["state"] for row in answer["hosts"]] == ["up", "up"]
        assert call("run", "--name", "cli", "--", "sh", "-c", 'echo "$TFDEPLOY_INVENTORY"; exit 7')[:2] == (7, out)
        assert call("kill", "n2", "--name", "cli")[0] == 0
        assert "n2  127.0.0.1" in call("status", "--name", "cli")[1]
        assert call("cut", "n2", "--name", "cli")[0] == 2
        assert call("up", "2", "--name", "cli", "--rate", "100mbit")[0] == 2
    finally:
        code, out, err = call("down", "--name", "cli")
    assert (code, out) == (0, ""), err
    assert call("status", "--name", "cli")[0] == 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("../up", "loopback", 3), "no name for a lab"),
        (("-x", "loopback", 3), "no name for a lab"),
        (("ok", "cloud", 3), "no kind of lab"),
        (("ok", "loopback", 0), "1 to 250 hosts"),
        (("ok", "loopback", 251), "1 to 250 hosts"),
    ],
)
def test_nonsense_is_refused(words: tuple[str, str, int], what: str, alone: Path) -> None:
    with pytest.raises(TfdeployError, match=what):
        lab.up(*words)
    assert left_of(alone / "ok")[2] == []
