"""Test that labs start, are repaired, and are removed completely."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import PATH, REPOSITORY
from support.needs import require
from support.waiting import wait_for
from tfdeploy import lab
from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.lab import folder, processes
from tfdeploy.lab.state import read

Ssh = Callable[..., subprocess.CompletedProcess[str]]
KINDS = ("loopback", pytest.param("isolated", marks=pytest.mark.needs("isolated lab")))


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a separate folder for labs, so that a test sees what its own labs leave behind."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state/tfdeploy/lab"
    for name in lab.names():
        lab.load(name).down()


def left_of(root: Path) -> tuple[set[int], list[str], list[str]]:
    """Return what remains of a lab: processes, mounts (as any process sees them) and files."""
    mounts = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/mountinfo")
        if str(root) in _text(path)
    ]
    files = [str(path) for path in root.rglob("*")] if root.exists() else []
    return processes.find_marked(str(root)), mounts, files


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.isolated
@pytest.mark.parametrize("place", ["/root", "/home", "/tmp", "/var/tmp"])
def test_an_environment_anywhere_runs_on_a_host(place: str, alone: Path, ssh: Ssh) -> None:
    require("isolated lab")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        Path(folder).chmod(0o700)
        environment = Path(folder, "clone/.venv")
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(environment)],
            check=True,
            timeout=60,
        )
        python = str(environment / "bin/python")
        fresh = lab.create_or_revive("anywhere", "isolated", 1, python=python)
        done = ssh(fresh, "n1", f"{python} -c 'import sys, ssl; print(sys.prefix)'")
        assert done.stdout.strip() == str(environment), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_after_down(kind: str, alone: Path, ssh: Ssh) -> None:
    # The two labs exist at the same time.
    first, second = lab.create_or_revive("one", kind, 2), lab.create_or_revive("two", kind, 2)
    ssh(first, "n1", "setsid sleep 1000 < /dev/null > /dev/null 2>&1 &")
    idle = subprocess.Popen(first.operator_command(["sleep", "1000"]))
    first.down()
    if kind == "loopback":
        idle.kill()
    assert idle.wait(timeout=120) != 0
    assert left_of(alone / "one") == (set(), [], [])
    assert [row["state"] for row in second.status()] == ["up", "up"]
    assert ssh(second, "n2", "true").returncode == 0
    second.down()
    assert left_of(alone) == (set(), [], [])


@pytest.mark.parametrize("kind", KINDS)
def test_up_killed_half_way_is_mended_or_removed(
    kind: str, alone: Path, tmp_path: Path, ssh: Ssh
) -> None:
    command = [
        sys.executable,
        "-m",
        "tfdeploy",
        "lab",
        "up",
        "12",
        "--kind",
        kind,
        "--name",
        "torn",
    ]
    environment = {
        "PATH": PATH,
        "PYTHONPATH": str(REPOSITORY),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    for attempt in range(2):
        upping = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(
            lambda: len(processes.find_marked(str(alone / "torn"))) > 3,
            20,
            "some hosts are coming up",
        )
        for pid in [upping.pid, *processes.with_descendants([upping.pid])]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        upping.wait()
        if attempt == 0:
            mended = lab.create_or_revive("torn", kind, 12)
            assert ssh(mended, "n12", "true").returncode == 0
        lab.load("torn").down()
        assert left_of(alone) == (set(), [], [])


def test_removing_a_lab_keeps_no_other_waiting_and_what_a_killed_removal_left_goes_too(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, seen = folder.delete_renamed_lab_and_leftovers, []

    def removing(aside: Path) -> None:
        seen.append((lab.names(), lab.create_or_revive("slow", "loopback", 1).status()[0]["state"]))
        # This replacement of the function removes nothing, as if the process was killed during the
        # removal.
        monkeypatch.setattr(folder, "delete_renamed_lab_and_leftovers", remove)

    lab.create_or_revive("slow", "loopback", 1)
    monkeypatch.setattr(folder, "delete_renamed_lab_and_leftovers", removing)
    lab.down("slow")
    assert seen == [([], "up")]
    (aside,) = alone.glob(f"{folder.ASIDE}*")
    died = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    aside.rename(aside.with_name(f"{folder.ASIDE}{died.stdout.strip()}-1"))
    lab.down("slow")
    assert left_of(alone) == (set(), [], [])


@pytest.mark.parametrize("kind", KINDS)
def test_down_finds_a_lab_whose_folder_is_gone(kind: str, alone: Path) -> None:
    lab.create_or_revive("bare", kind, 2)
    shutil.rmtree(alone / "bare")
    lab.down("bare")
    assert left_of(alone) == (set(), [], [])
    with pytest.raises(UsageError, match="no lab 'bare'"):
        lab.down("bare")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", ["first process", "sshd"])
def test_up_starts_what_died(kind: str, victim: str, alone: Path, ssh: Ssh) -> None:
    fresh = lab.create_or_revive("mortal", kind, 2)
    first = fresh.status()
    pid = int(str(first[0]["pid"]))
    if victim == "sshd":
        # Only the direct child is the sshd. Its children are connections that are not closed yet.
        (pid,) = map(int, _text(Path(f"/proc/{pid}/task/{pid}/children")).split())
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: processes.identify(pid) is None, 5, "it is dead")
    if victim == "sshd" and kind == "isolated":
        wait_for(lambda: fresh.status()[0]["state"] == "off", 5, "the host ends with its sshd")
    again = lab.create_or_revive("mortal", kind, 2)
    assert ssh(again, "n1", "true").returncode == 0
    assert again.status()[1] == first[1]


@pytest.mark.isolated
def test_up_starts_a_router_that_died_and_another_number_of_sites_is_refused(
    alone: Path, ssh: Ssh
) -> None:
    require("isolated lab")
    fresh = lab.create_or_revive("parted", "isolated", 2, sites=2, between="100mbit")
    router = read(fresh.root).networks["router"]
    processes.send_kill(router.pid)
    wait_for(lambda: not processes.is_alive(router), 5, "it is dead")
    assert ssh(fresh, "n2", "true", timeout_s=1).returncode == 255
    again = lab.create_or_revive("parted", "isolated", 2, sites=2, between="100mbit")
    assert ssh(again, "n2", "true").returncode == 0
    with pytest.raises(UsageError, match="with sites 2, not 1"):
        lab.create_or_revive("parted", "isolated", 2)
    again.down()
    assert left_of(alone) == (set(), [], [])


def test_the_command_line(tmp_path: Path) -> None:
    environment = {
        "PATH": PATH,
        "PYTHONPATH": str(REPOSITORY),
        "XDG_STATE_HOME": str(tmp_path),
        "HOME": str(tmp_path),
    }

    def call(*args: str) -> tuple[int, str, str]:
        argv = [sys.executable, "-m", "tfdeploy", "lab", *args]
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    try:
        code, out, err = call("up", "2", "--name", "cli")
        assert code == 0, err
        assert Path(out.strip()).read_text().startswith("# The lab 'cli'")
        answer: dict[str, Any] = json.loads(call("status", "--name", "cli", "--json")[1])
        assert [row["state"] for row in answer["hosts"]] == ["up", "up"]
        assert call("run", "--name", "cli", "--", "sh", "-c", 'echo "$TFDEPLOY_INVENTORY"; exit 7')[
            :2
        ] == (7, out)
        assert call("kill", "n2", "--name", "cli")[0] == 0
        _, rows, said = call("status", "--name", "cli")
        assert "n2  127.0.0.1" in rows and f"-i {out.strip()}\n" in said
        assert call("cut", "n2", "--name", "cli")[0] == 2
        assert call("up", "2", "--name", "cli", "--rate", "100mbit")[0] == 2
    finally:
        code, out, err = call("down", "--name", "cli")
    assert (code, out) == (0, ""), err
    assert call("status", "--name", "cli")[0] == 2


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("../up", "loopback", 3), "is not a lab name"),
        (("-x", "loopback", 3), "is not a lab name"),
        (("ok", "cloud", 3), "unknown kind of lab"),
        (("ok", "loopback", 0), "1 to 250 hosts"),
        (("ok", "loopback", 251), "1 to 250 hosts"),
    ],
)
def test_nonsense_is_refused(args: tuple[str, str, int], what: str, alone: Path) -> None:
    with pytest.raises(TfdeployError, match=what):
        lab.create_or_revive(*args)
    assert left_of(alone / "ok")[2] == []


@pytest.mark.parametrize(
    "rate",
    ["fast", "0mbit", "-1mbit", "100", "100mbit\nqdisc del dev eth0 root", "100mbit latency 1s"],
)
def test_what_is_no_rate_is_refused(rate: str, alone: Path) -> None:
    for wish in ({"rate": rate}, {"sites": 2, "between": rate}):
        with pytest.raises(UsageError, match="is not a rate"):
            lab.create_or_revive("ok", "isolated", 2, **wish)  # type: ignore[arg-type]
    assert left_of(alone / "ok")[2] == []


@pytest.mark.parametrize(
    ("kind", "sites", "between", "what"),
    [
        ("loopback", 2, None, "one site"),
        ("isolated", 0, None, "1 to 3 sites, not 0"),
        ("isolated", 4, None, "1 to 3 sites, not 4"),
        ("isolated", 1, "20mbit", "no link between sites"),
    ],
)
def test_sites_that_cannot_be_are_refused(
    kind: str, sites: int, between: str | None, what: str, alone: Path
) -> None:
    with pytest.raises(UsageError, match=what):
        lab.create_or_revive("ok", kind, 3, sites=sites, between=between)
    assert left_of(alone / "ok")[2] == []


def test_hosts_of_one_name_share_no_workdir(alone: Path) -> None:
    with pytest.raises(UsageError, match="share a workdir"):
        lab.create_or_revive("ok", "loopback", 2, shared_workdir=True)
    assert left_of(alone / "ok")[2] == []


@pytest.mark.needs("isolated lab")
def test_a_root_that_is_an_overlay_holds_an_isolated_lab(tmp_path: Path) -> None:
    """The root file system is an overlay, as in a container, where /proc/sys is also read-only.

    The files of a host must survive a power cycle.
    """
    script = """
        set -e
        mount -t tmpfs tmpfs "$1"
        mkdir "$1/layer" "$1/work" "$1/root"
        mount -t overlay overlay -o "lowerdir=/,upperdir=$1/layer,workdir=$1/work" "$1/root"
        for each in proc sys dev; do mount --rbind "/$each" "$1/root/$each"; done
        mount --bind "$1/root/proc/sys" "$1/root/proc/sys"
        mount -o remount,bind,ro "$1/root/proc/sys"
        exec chroot "$1/root" sh -e -c "$2"
    """
    inside = f"""
        export XDG_STATE_HOME=/srv/labs PYTHONPATH={REPOSITORY}:{REPOSITORY}/tests
        tfdeploy() {{ {sys.executable} -m tfdeploy lab "$@"; }}
        tfdeploy up 2 --kind isolated --sites 2 --name stacked
        readlink /srv/labs/tfdeploy/lab/stacked/layers
        {sys.executable} -c "
import subprocess
from support.lab.host_commands import host_command
from tfdeploy import lab
one = lab.load('stacked')
script = 'echo kept > /etc/mine'
subprocess.run(host_command(one, 'n1', ['sh', '-c', script], root=True), check=True)
one.kill('n1')
one.boot('n1')
subprocess.run(host_command(one, 'n1', ['cat', '/etc/mine']), check=True)
"
        tfdeploy down --name stacked
        ls /srv/labs/tfdeploy/lab
    """
    command = ["unshare", "--mount", "sh", "-e", "-c", script, "sh", str(tmp_path), inside]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # The labs of other tests come and go in /dev/shm at the same time.
    (layers,) = re.findall(r"^/dev/shm/tfdeploy-lab-\S+$", done.stdout, re.MULTILINE)
    assert "kept" in done.stdout and not Path(layers).exists()
