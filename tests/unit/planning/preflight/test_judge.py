"""Test the checks of a launch with made-up facts about hosts. No check fails for a healthy host."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest

from support.probed_hosts import (
    CARD,
    MIB,
    MOUNT,
    NO_FILTER,
    SHORT_FILTER,
    FactsOf,
    failed_checks,
    seen_of,
)
from tfdeploy.errors import AgentError, HostUnreachable, Refused
from tfdeploy.model.facts import (
    FolderSpace,
    LiveRun,
    LogoutPolicy,
    Quota,
)
from tfdeploy.planning.host_checks import most_frequent_version
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.preflight.judge import (
    BEYOND_PLAN,
    RULES,
    ProbeResults,
    check_hosts,
    unreachable_host_checks,
)
from tfdeploy.text.units import version_numbers


def test_healthy_hosts_pass_all_checks(facts_of: FactsOf) -> None:
    checks = check_hosts(
        ProbeResults(seen_of(facts_of), Needs(bytes=MIB, files=10, tensorflow=True))
    )
    assert failed_checks(checks) == [] and [check.check for check in checks["n1"]] == list(RULES)


NO_PYTHON = {
    "python": None,
    "python_version": None,
    "problems": ("there is no program python3 here",),
}
KILLS = {"linger": False, "kill_user_processes": True}
CASES: list[tuple[dict[str, Any], str, str, str, str]] = [
    # (facts of n2, check that fails, its level, part of its detail, part of its fix)
    ({"noise": "hello"}, "shell", "warning", "'hello'", "~/.bashrc"),
    (
        {"python": None, "python_version": None, "problems": ("there is no program python3 here",)},
        "python",
        "error",
        "no program",
        "set `python:` to /usr/bin/python3, which most hosts use, or install python3 on n2",
    ),
    ({"python_version": "3.9.1"}, "python", "warning", "Python 3.9.1", "to use Python 3.11.2"),
    (
        {"tensorflow": "2.20.0"},
        "tensorflow",
        "warning",
        "TensorFlow 2.20.0, most hosts have 2.21.0",
        "tensorflow==2.21.0",
    ),
    ({"tensorflow": None}, "tensorflow", "warning", "no TensorFlow", "pip install"),
    ({"entry": {"gpus": (3,)}}, "gpus", "error", "GPU 3", "gpus: auto"),
    ({"gpu_error": "nvidia-smi: mismatch"}, "gpus", "warning", "mismatch", "reboot"),
    ({"nvidia_devices": 2}, "gpus", "warning", "2 GPUs of NVIDIA are on the bus", "gpus: none"),
    ({"gpus": (replace(CARD, used_mib=90_000),)}, "gpus", "warning", "GPU 0 (H200)", "nvidia-smi"),
    (
        {"gpus": (CARD,), "cpu_only": True},
        "driver",
        "warning",
        "built without GPU support",
        "and-cuda",
    ),
    (
        {"gpus": (CARD,), "driver": "470.82.01"},
        "driver",
        "warning",
        "470.82.01 is older than 525.60.13",
        "525.60.13",
    ),
    ({"rsync": None}, "rsync", "error", "missing", "apt-get"),
    ({"rsync": "3.0.9"}, "rsync", "warning", "3.0.9 is older", "apt-get"),
    ({"free_disk_bytes": 10 * MIB}, "disk", "error", "10 MiB free", "free 54 MiB on n2"),
    ({"free_disk_bytes": 500 * MIB}, "disk", "warning", "500 MiB free", "df -h"),
    ({"free_inodes": 5}, "inodes", "error", "5 inodes", "df -i"),
    ({"free_inodes": 500}, "inodes", "warning", "500 inodes", "df -i"),
    ({"quota": Quota(MIB, None, True)}, "quota", "error", "leaves 1 MiB", "quota -s"),
    ({"quota": Quota(None, 5, False)}, "quota", "error", "leaves 5 files", "quota -s"),
    ({"quota": Quota(9 << 30, None, True)}, "quota", "warning", "soft quota", "quota -s"),
    ({"available_bytes": 100 * MIB}, "memory", "warning", "100 MiB of memory", "ps -eo"),
    (
        {"limits": {"open files": 64}},
        "limits",
        "warning",
        "the limit of open files is 64",
        "nofile",
    ),
    ({"limits": {"processes": 64}}, "limits", "warning", "the limit of processes is 64", "nproc"),
    (
        {"limits": {"address space": 1 << 30}},
        "limits",
        "warning",
        "address space is limited to 1 GiB",
        "- as unlimited",
    ),
    (
        {"limits": {"file size": 1 << 20}},
        "limits",
        "warning",
        "file size is limited",
        "- fsize unlimited",
    ),
    ({"limits": {"CPU seconds": 60}}, "limits", "warning", "killed after 60 s", "- cpu unlimited"),
    ({"shared_memory": None}, "shared memory", "warning", "no /dev/shm", "mount -t tmpfs"),
    (
        {"shared_memory": FolderSpace("/dev/shm", False, 1 << 40)},
        "shared memory",
        "warning",
        "cannot write",
        "chmod 1777",
    ),
    (
        {"shared_memory": FolderSpace("/dev/shm", True, 64 * MIB)},
        "shared memory",
        "warning",
        "64 MiB free",
        "--shm-size",
    ),
    (
        {"temporary": FolderSpace("/tmp", False, 1 << 40)},
        "temporary files",
        "warning",
        "cannot write in /tmp",
        "chmod 1777 /tmp",
    ),
    (
        {"temporary": FolderSpace("/missing", False, 0)},
        "temporary files",
        "warning",
        "cannot write in /missing",
        "change TMPDIR",
    ),
    (
        {"temporary": FolderSpace("/tmp", True, MIB)},
        "temporary files",
        "warning",
        "1 MiB free",
        "du -xsh",
    ),
    ({"workdir_mode": 0o755}, "workdir", "warning", "mode 0755", "chmod o-rwx"),
    (
        {"mount": replace(MOUNT, options=("rw", "noexec"))},
        "filesystem",
        "warning",
        "noexec",
        "remount,exec",
    ),
    (
        {"mount": replace(MOUNT, type="fuse.sshfs")},
        "filesystem",
        "warning",
        "fuse.sshfs",
        "workdir:",
    ),
    ({"mount": replace(MOUNT, type="tmpfs")}, "filesystem", "warning", "next reboot", "workdir:"),
    ({"entry": {"advertise": "127.0.0.1"}}, "address", "error", "127.0.0.1", "advertise"),
    ({"entry": {"advertise": "8.8.8.8"}}, "address", "warning", "public", "--allow-public"),
    (
        {"entry": {"address": "host-two"}},
        "address",
        "error",
        "the address at which other hosts reach",
        "advertise: ADDRESS",
    ),
    (
        {"boot_id": "1", "hostname": "n1"},
        "address",
        "error",
        "n1 and n2 are one machine",
        "--exclude n2",
    ),
    (
        {"free_ports": (2222,), "taken_ports": {"2223": "pid 4: x"}},
        "ports",
        "error",
        "2223 by pid 4: x",
        "widen",
    ),
    ({"ephemeral_ports": 9}, "ports", "warning", "9 ports of 2222-2299", "ip_local_reserved_ports"),
    (
        {"protect": NO_FILTER},
        "protect",
        "warning",
        "(no such filter): whoever reaches the ports",
        "uname -r",
    ),
    ({"protect": SHORT_FILTER}, "protect", "warning", "accepts at most 8 ", "optmem_max=131072"),
    ({"proxies": ("http_proxy",)}, "environment", "warning", "http_proxy", "/etc/environment"),
    ({"preset": ("TF_CONFIG",)}, "environment", "warning", "TF_CONFIG", "~/.bashrc"),
    (
        {"skew_s": 3599.9},
        "clock",
        "warning",
        "its clock is 1 h ahead",
        "as root on n2: timedatectl set-ntp true",
    ),
    (
        {"linger": False, "kill_user_processes": True, "logout": LogoutPolicy(True, False)},
        "logout",
        "error",
        "KillUserProcesses",
        "enable-linger ml",
    ),
    (KILLS, "logout", "warning", "KillUserProcesses=yes", "enable-linger ml"),
    (
        {"linger": False, "logout": LogoutPolicy(False, True)},
        "logout",
        "warning",
        "RemoveIPC",
        "enable-linger ml",
    ),
    ({"live_runs": (LiveRun("r1", "me@here"),)}, "runs", "warning", "r1", "tfdeploy stop r1"),
    (
        {"problems": ("an old run cannot be read (x): remove its folder",)},
        "problems",
        "warning",
        "an old run",
        "tfdeploy ssh n2",
    ),
]


@pytest.mark.parametrize(
    ("changed_facts", "check", "level", "detail", "fix"),
    CASES,
    ids=[f"{case[1]}: {case[3]}" for case in CASES],
)
def test_problem_of_one_host_is_reported_with_fix(
    facts_of: FactsOf, changed_facts: dict[str, Any], check: str, level: str, detail: str, fix: str
) -> None:
    checks_by_host = check_hosts(ProbeResults(seen_of(facts_of, **changed_facts), Needs(files=50)))
    failures = [
        (host, host_check)
        for host, checks in checks_by_host.items()
        for host_check in checks
        if not host_check.ok
    ]
    assert [host_check.check for _, host_check in failures] == [check], failures
    (host, failure) = failures[0]
    assert failure.level == level and detail in failure.detail and fix in (failure.fix or ""), (
        failure
    )
    assert host == "n2" or "n2" in failure.detail
    # The fix is a command that the operator can type, without further words such as "there".
    assert "there)" not in (failure.fix or "")


@pytest.mark.parametrize(
    ("changed_facts", "words"),
    # (facts that n2 reports, the word that must be quoted in the command which the operator pastes)
    [
        ({"tensorflow": None, "python": "/x; reboot"}, "/x; reboot"),
        (
            {"tensorflow": "1.0;reboot", "cpu_only": True, "gpus": (CARD,)},
            "tensorflow[and-cuda]==1.0;reboot",
        ),
        ({"user": "$(reboot)", **KILLS}, "$(reboot)"),
        ({"workdir_mode": 0o755, "workdir": "/home/`reboot`"}, "/home/`reboot`"),
        ({"temporary": FolderSpace("/t'; reboot #", False, 1 << 40)}, "/t'; reboot #"),
        ({"temporary": FolderSpace("/t'; reboot #", True, MIB)}, "du -xsh '/t'\"'\"'; reboot #'/*"),
        ({"mount": replace(MOUNT, options=("noexec",), point="/$(reboot)")}, "/$(reboot)"),
    ],
)
def test_text_of_host_is_one_quoted_word_in_fix(
    facts_of: FactsOf, changed_facts: dict[str, Any], words: str
) -> None:
    checks = check_hosts(ProbeResults(seen_of(facts_of, **changed_facts)))["n2"]
    fixes = [
        shlex.split(part)
        for host_check in checks
        for part in re.split(
            r"`(?=tfdeploy exec)|`(?=;|\Z)|as root on n2: |; or ", host_check.fix or ""
        )
        if part.startswith(("tfdeploy exec", "loginctl", "chmod", "mount"))
    ]
    assert any(words in fix for fix in fixes), fixes


def test_packages_missing_from_other_python_are_one_problem(
    facts_of: FactsOf,
) -> None:
    changed_facts = {
        "tensorflow": None,
        "tf_keras": None,
        "keras": None,
        "python": "/usr/bin/python3",
    }
    seen = seen_of(facts_of, entry={"places": {"python": "lab.yaml:9"}}, **changed_facts)
    for host in ("n1", "n3"):
        seen[host] = replace(
            seen[host],
            facts=replace(
                seen[host].facts, python="/opt/tf/bin/python", tf_keras="2.21.0", keras="3.1"
            ),
        )
    [(host, failure)] = [
        (host, check)
        for host, checks in check_hosts(ProbeResults(seen)).items()
        for check in checks
        if not check.ok
    ]
    assert (host, failure.detail) == (
        "n2",
        "no TensorFlow, most hosts have 2.21.0; no tf_keras, most hosts have 2.21.0; no Keras, "
        "most hosts have 3.1",
    )
    assert failure.fix == (
        "n2 uses /usr/bin/python3, most hosts use /opt/tf/bin/python: set `python:` (lab.yaml:9), "
        "or: `tfdeploy exec --limit n2 -- "
        "/usr/bin/python3 -m pip install tensorflow==2.21.0 tf_keras==2.21.0 keras==3.1`"
    )


def test_fix_installs_python3_only_if_it_is_missing(facts_of: FactsOf) -> None:
    for entry, install in ({}, True), ({"python": "/opt/python9"}, False):
        checks = check_hosts(
            ProbeResults(seen_of(facts_of, entry=entry, **NO_PYTHON)), ("python",)
        )["n2"]
        assert ("install python3 on n2" in (checks[0].fix or "")) is install


@pytest.mark.parametrize(
    "changed_facts",
    [
        {"linger": True, "kill_user_processes": True, "logout": LogoutPolicy(True, True)},
        {"entry": {"gpus": "none"}, "nvidia_devices": 2, "gpu_error": "broken"},
        {"gpus": (CARD,), "driver": "550.54.15"},
        {"gpus": (CARD,), "driver": "470.82.01", "tensorflow": "2.21.0", "entry": {"gpus": "none"}},
        {"skew_s": 4.0},
        {"workdir_mode": 0o770},
        {"problems": ("there is no program python9",)},
    ],
)
def test_harmless_facts_pass_all_checks(facts_of: FactsOf, changed_facts: dict[str, Any]) -> None:
    assert failed_checks(check_hosts(ProbeResults(seen_of(facts_of, **changed_facts)))) == []


def test_clock_is_compared_with_those_of_most_hosts(facts_of: FactsOf) -> None:
    seen = {host: replace(seen, skew_s=-90.0) for host, seen in seen_of(facts_of).items()}
    # All hosts differ from this machine by 90 s, so the clock of this machine is wrong.
    assert failed_checks(check_hosts(ProbeResults(seen))) == []
    assert len(failed_checks(check_hosts(ProbeResults({"n1": seen["n1"]})))) == 1


def test_unmet_needs_of_job_are_errors(facts_of: FactsOf) -> None:
    needs = Needs(
        bytes=200 << 30,
        files=2_000_000,
        tensorflow=True,
        requirements="requirements.txt",
        sync=False,
    )
    changed_facts = {
        "tensorflow": None,
        "rsync": None,
        "mount": replace(MOUNT, options=("noexec",)),
    }
    collected = [
        failure
        for failure in failed_checks(
            check_hosts(ProbeResults(seen_of(facts_of, **changed_facts), needs))
        )
        if failure[0] == "n2"
    ]
    levels = {(check, level) for _, check, level, _ in collected}
    assert {
        ("tensorflow", "error"),
        ("rsync", "warning"),
        ("disk", "error"),
        ("inodes", "error"),
        ("filesystem", "error"),
    } <= levels
    # The environment is missing, because `setup` has not been run yet.
    assert ("python", "error") in levels


def test_refused_plan_is_reported_unless_another_error_explains_it(
    facts_of: FactsOf,
) -> None:
    refused = Refused("no", where="host n3", next="do")
    checks = check_hosts(ProbeResults(seen_of(facts_of), refused=refused))
    assert failed_checks(checks) == [("n3", "plan", "error", "no")] and checks["n3"][-1].fix == "do"
    assert [
        row[:2]
        for row in failed_checks(
            check_hosts(ProbeResults(seen_of(facts_of), refused=Refused("no")))
        )
    ] == [("n1", "plan")]
    checks_without_rsync = check_hosts(
        ProbeResults(
            seen_of(facts_of, rsync=None),
            refused=Refused("rsync is missing on n2", where="host n2"),
        )
    )
    assert [row[:2] for row in failed_checks(checks_without_rsync)] == [("n2", "rsync")]


def test_launch_checks_only_what_plan_does_not(facts_of: FactsOf) -> None:
    checks = check_hosts(
        ProbeResults(seen_of(facts_of, rsync=None, quota=Quota(1, None, True), skew_s=999.0)),
        BEYOND_PLAN,
    )
    assert [row[1] for row in failed_checks(checks)] == ["quota"]


def test_error_of_unreachable_host_is_failed_check() -> None:
    assert [
        check.check for check in unreachable_host_checks(HostUnreachable("no", where="n1"))
    ] == ["ssh"]
    passed, failed = unreachable_host_checks(AgentError("no", code="refused"))
    assert passed.ok and (failed.check, failed.is_error) == ("agent", True)


def test_parsing_of_versions() -> None:
    assert version_numbers("535.104.05") == (535, 104, 5) and version_numbers("2.21.0rc1")[:2] == (
        2,
        21,
    )
    assert version_numbers("unknown") == version_numbers(None) == ()
    assert (
        most_frequent_version(["2.20.0", None, "2.21.0"]) == "2.21.0"
        and most_frequent_version([None]) is None
    )


def test_reserve_larger_than_disk_is_named(facts_of: FactsOf) -> None:
    [(host, check, level, detail)] = failed_checks(
        check_hosts(ProbeResults(seen_of(facts_of, entry={"reserve": 5000 << 30}), Needs()))
    )
    assert (host, check, level) == ("n2", "reserve", "warning")
    assert "`reserve` keeps 5000 GiB free: no more data fits" in detail
