"""Test how tfdeploy finds out whether this machine can run a lab (simulated hosts).

If a capability is missing, the error contains the command that provides it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.lab.commandline import PATH, REPOSITORY
from tfdeploy.errors import Refused
from tfdeploy.lab import capabilities
from tfdeploy.lab.trials import TRIALS

DENIED = "unshare: Operation not permitted"
EVERYTHING = {**dict.fromkeys(TRIALS, ""), "spare overlay": ""}
UP = [sys.executable, "-m", "tfdeploy", "lab", "up", "3", "--kind", "isolated"]
WITHOUT_PIVOT_ROOT = """
import array, ctypes, os, platform, struct, sys
number = {"x86_64": 155, "aarch64": 41}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
packed = array.array("B", b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HP", len(rules), packed.buffer_info()[0]))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Replace the results of all trials on this machine by a dict {trial: result}, in which every
    trial succeeds. Return the dict.

    A test may change a result before it calls tfdeploy.
    """
    changed = dict(EVERYTHING)
    monkeypatch.setattr(capabilities, "_run_kernel_trials", lambda labs, device: changed)
    monkeypatch.setattr(capabilities, "find_program", lambda name: name)
    return changed


def test_every_capability_is_tried_and_nothing_remains(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfdeploy.lab.trials", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": PATH, "PYTHONPATH": str(REPOSITORY)},
    )
    assert all(f'"{name}": ' in done.stdout for name in TRIALS)
    assert (
        list(tmp_path.iterdir()) == []
        and str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    )


@pytest.mark.needs("isolated lab")
@pytest.mark.parametrize(
    ("before", "message"),
    [
        (
            ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],
            f"no network namespaces, process namespaces, {DENIED}",
        ),
        (
            [sys.executable, "-c", WITHOUT_PIVOT_ROOT],
            "no mounts (pivot_root: Operation not permitted)",
        ),
    ],
    ids=["no SYS_ADMIN", "seccomp"],
)
def test_isolated_lab_is_refused_before_anything_is_created(
    tmp_path: Path, before: list[str], message: str
) -> None:
    environment = {
        "PATH": PATH,
        "PYTHONPATH": str(REPOSITORY),
        "XDG_STATE_HOME": str(tmp_path),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [*before, *UP], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert done.returncode == 3, done.stderr
    assert all(part in done.stderr for part in message.split(", ")), done.stderr
    assert (
        "docker run --cap-add=SYS_ADMIN" in done.stderr
        and "tfdeploy lab up 3 --kind loopback" in done.stderr
    )
    assert list((tmp_path / "tfdeploy/lab").iterdir()) == []


def test_user_who_cannot_change_user_is_told_to_use_sudo(answers: dict[str, str]) -> None:
    answers.update(dict.fromkeys(("mounts", "links", "network namespaces"), DENIED))
    answers["other accounts"] = "Operation not permitted"
    lacks = capabilities.find_missing_capabilities("isolated lab", command="make test")
    expected = (
        f"no network namespaces, mounts, links ({DENIED}); no other accounts (Operation not "
        "permitted)"
    )
    assert capabilities.describe_missing(lacks) == expected
    assert capabilities.join_remedies(lacks) == "`sudo make test`"


def test_missing_programs_are_one_line(
    answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        capabilities, "find_program", lambda name: name not in ("ip", "tc", "rsync")
    )
    answers["links"] = "ip is not installed"
    with pytest.raises(Refused) as refused:
        capabilities.require_isolated(3)
    assert "no rsync, ip, tc (not installed)" in refused.value.what
    assert str(refused.value.next).startswith(
        "`apt-get install rsync iproute2`; or a loopback lab, which needs no root: "
    )


def test_overlay_on_tmpfs_replaces_overlay_next_to_lab(answers: dict[str, str]) -> None:
    answers["overlay"] = "mount overlay: Invalid argument"
    assert capabilities.find_missing_capabilities("isolated lab", command="x") == []
    del answers["spare overlay"]
    (lack,) = capabilities.find_missing_capabilities("isolated lab", command="x")
    assert (
        lack.name == "overlay"
        and lack.remedy == "export XDG_STATE_HOME=FOLDER  # on ext4, xfs or tmpfs"
    )


def test_ordinary_user_lacks_nothing_if_all_trials_succeed(
    answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert capabilities.find_missing_capabilities("isolated lab", command="x") == []


def test_trials_that_do_not_end_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "TRIALS_TIMEOUT_S", 0.001)
    with pytest.raises(Refused, match=r"did not end within 0 s$"):
        capabilities._run_kernel_trials.__wrapped__(str(tmp_path), 0)
