"""Test the checks of a launch with made-up facts about hosts. No check fails for a healthy host."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import AgentError, HostUnreachable, Refused
from tfdeploy.model.facts import (
    FolderSpace,
    Gpu,
    HostFacts,
    LiveRun,
    LogoutPolicy,
    Mount,
    PreflightFacts,
    ProtectionHindrances,
    Quota,
)
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.output.check import Check
from tfdeploy.model.protect import AskedLevel
from tfdeploy.model.text.units import version_numbers
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.preflight.case import Needs, most_frequent
from tfdeploy.planning.preflight.judge import (
    BEYOND_PLAN,
    RULES,
    ProbedHost,
    ProbeResults,
    check_hosts,
    unreachable_host_checks,
)
from tfdeploy.planning.source.imports import Import

MIB = 1 << 20
HEALTHY = PreflightFacts(
    limits={"open files": 1024, "processes": 95_000},
    available_bytes=8 << 30,
    shared_memory=FolderSpace("/dev/shm", True, 4 << 30),
    temporary=FolderSpace("/tmp", True, 4 << 30),
    mount=Mount("/dev/sda1", "/", "ext4", ("rw", "relatime")),
    workdir_mode=0o700,
    quota=None,
    driver=None,
    nvidia_devices=0,
    logout=LogoutPolicy(kills=False, removes_ipc=False),
    ephemeral_ports=0,
)
CARD = Gpu(index=0, name="H200", memory_mib=143771, used_mib=0)
MOUNT = HEALTHY.mount
assert MOUNT is not None
NO_FILTER = ProtectionHindrances(peers="no such filter", firewall="", most_instructions=4096)
SHORT_FILTER = ProtectionHindrances(peers="", firewall="", most_instructions=8)
NO_NFT = ProtectionHindrances(peers="", firewall="nft is not installed", most_instructions=4096)
ALL = ProtectionHindrances(peers="", firewall="", most_instructions=4096)
FactsOf = Callable[..., HostFacts]


def seen_of(
    facts_of: FactsOf, hosts: int = 3, *, entry: dict[str, Any] | None = None, **of_n2: Any
) -> dict[str, ProbedHost]:
    """Return facts about the hosts n1, n2, ... All hosts are healthy, except that some facts of n2
    are replaced.

    `of_n2`: the replaced fields and their values. They are fields of ProbedHost, PreflightFacts or
    HostFacts. `entry`: fields of n2's entry in the inventory (Host).
    """
    seen_by_host = {}
    for number in range(1, hosts + 1):
        changed_facts, keys = (of_n2, entry or {}) if number == 2 else ({}, {})
        host = replace(Host(name=f"n{number}", address=f"192.0.2.{number}"), **keys)
        preflight_fields = {
            key: value
            for key, value in changed_facts.items()
            if key in PreflightFacts.__dataclass_fields__
        }
        fact_fields = {
            key: value
            for key, value in changed_facts.items()
            if key in HostFacts.__dataclass_fields__
        }
        facts = replace(
            facts_of(host, boot_id=str(number)),
            preflight=replace(HEALTHY, **preflight_fields),
            **fact_fields,
        )
        seen_by_host[host.name] = ProbedHost(
            host, facts, changed_facts.get("skew_s", 0.0), changed_facts.get("noise", "")
        )
    return seen_by_host


def failed_checks(checks_by_host: dict[str, tuple[Check, ...]]) -> list[tuple[str, str, str, str]]:
    return [
        (host, check.check, check.level, check.detail)
        for host, checks in checks_by_host.items()
        for check in checks
        if not check.ok
    ]


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
        "set `python:` to /usr/bin/python3, as most hosts have it, or install python3 on n2",
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
    ({"limits": {"open files": 64}}, "limits", "warning", "at most 64 open files", "nofile"),
    ({"limits": {"processes": 64}}, "limits", "warning", "at most 64 processes", "nproc"),
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
        "nothing says which address",
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
        "no such filter: the ports of a run are open",
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


def test_single_free_port_is_described_in_singular(facts_of: FactsOf) -> None:
    problems = failed_checks(
        check_hosts(
            ProbeResults(seen_of(facts_of, free_ports=(2222,), ephemeral_ports=1)), ("ports",)
        )
    )
    assert [detail for *_, detail in problems] == [
        "1 port of 2222-2299 is free",
        "1 port of 2222-2299 may be given to any outgoing connection",
    ]


@pytest.mark.parametrize(
    "changed_facts",
    [
        {"linger": True, "kill_user_processes": True, "logout": LogoutPolicy(True, True)},
        {"entry": {"gpus": "none"}, "nvidia_devices": 2, "gpu_error": "broken"},
        {"gpus": (CARD,), "driver": "550.54.15"},
        {"gpus": (CARD,), "driver": "470.82.01", "tensorflow": "2.21.0", "entry": {"gpus": "none"}},
        {"skew_s": 4.0},
        {"workdir_mode": 0o770},
        {"problems": ("only 3 inodes are free in /x",)},
    ],
)
def test_harmless_facts_pass_all_checks(facts_of: FactsOf, changed_facts: dict[str, Any]) -> None:
    assert failed_checks(check_hosts(ProbeResults(seen_of(facts_of, **changed_facts)))) == []


def test_clock_is_compared_with_those_of_most_hosts(facts_of: FactsOf) -> None:
    seen = {host: replace(seen, skew_s=-90.0) for host, seen in seen_of(facts_of).items()}
    # All hosts differ from this machine by 90 s, so the clock of this machine is wrong.
    assert failed_checks(check_hosts(ProbeResults(seen))) == []
    assert len(failed_checks(check_hosts(ProbeResults({"n1": seen["n1"]})))) == 1


@pytest.mark.parametrize(
    ("asked", "others", "of_n2", "expected"),
    # (protection that the operator asks for, what hinders n1 and n3, what hinders n2, result). The
    # result is (level, part of the detail, part of the fix) of the check, or None if it succeeds.
    [
        (
            "auto",
            ALL,
            NO_NFT,
            (
                "warning",
                "falls to `protect: peers`, but most hosts can do more: nft is not",
                "ml ALL=(root) NOPASSWD",
            ),
        ),
        # Only n2 can use nft.
        ("auto", NO_NFT, ALL, None),
        (
            "auto",
            ALL,
            NO_FILTER,
            ("warning", "no such filter: the ports of a run are open", "uname -r"),
        ),
        (
            "firewall",
            ALL,
            NO_NFT,
            ("error", "`protect: firewall`: nft is not installed", "or write `protect: auto`"),
        ),
        ("firewall", ALL, NO_FILTER, ("error", "`protect: firewall`: no such filter", "uname -r")),
        (
            "firewall",
            ALL,
            SHORT_FILTER,
            ("error", "`protect: firewall`: a filter for the addresses", "optmem_max"),
        ),
        ("peers", ALL, NO_NFT, None),
        ("peers", ALL, NO_FILTER, ("error", "`protect: peers`: no such filter", "uname -r")),
        ("none", ALL, NO_FILTER, None),
    ],
)
def test_unsupported_protection_is_reported(
    facts_of: FactsOf,
    asked: AskedLevel,
    others: ProtectionHindrances,
    of_n2: ProtectionHindrances,
    expected: tuple[str, str, str] | None,
) -> None:
    seen_with_others = {
        host: replace(seen_host, facts=replace(seen_host.facts, protect=others))
        for host, seen_host in seen_of(facts_of).items()
    }
    seen = {
        **seen_with_others,
        "n2": replace(
            seen_with_others["n2"], facts=replace(seen_with_others["n2"].facts, protect=of_n2)
        ),
    }
    checks_by_host = check_hosts(ProbeResults(seen, Needs(protect=asked)))
    failures = [
        (host, check) for host, checks in checks_by_host.items() for check in checks if not check.ok
    ]
    if expected is None:
        assert failures == []
        return
    [(host, failure)] = failures
    assert (
        (host, failure.check, failure.level) == ("n2", "protect", expected[0])
        and expected[1] in failure.detail
        and expected[2] in (failure.fix or "")
    ), failure
    # The run has no task on n2.
    assert (
        failed_checks(check_hosts(ProbeResults(seen, Needs(protect=asked, hosts=("n1", "n3")))))
        == []
    )


def test_host_that_launch_would_refuse_is_error(
    facts_of: FactsOf, job: Job, inventory: Callable[..., Inventory]
) -> None:
    seen = seen_of(facts_of, protect=NO_FILTER)
    hosts = inventory(ps="n1", worker="n2 n3")
    facts = {host: seen_host.facts for host, seen_host in seen.items()}
    plan = make_plan(
        hosts,
        job,
        facts,
        release="r",
        sources={"train.py": ""},
        run="r",
        now=0.0,
        operator="o",
        options=Options(allow_open=True),
    )
    [(host, failure)] = [
        (host, check)
        for host, checks in check_hosts(ProbeResults(seen, Needs(plan=plan))).items()
        for check in checks
        if not check.ok
    ]
    assert (host, failure.check, failure.level) == (
        "n2",
        "protect",
        "error",
    ) and "--allow-open" in (failure.fix or "")


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


IMPORTS = (
    Import("cv2", "train.py:2", always_reached=True),
    Import("gym", "env.py:9", always_reached=False),
    Import("numpy", "train.py:1", always_reached=True),
)


def failed_package_checks(
    facts_of: FactsOf, needs: Needs, *modules: str, **of_n2: Any
) -> list[Check]:
    """Return the checks that fail if these Python modules are missing on n2."""
    asked = {
        module_import.module: module_import.module not in modules for module_import in needs.imports
    }
    checks = check_hosts(
        ProbeResults(seen_of(facts_of, modules=asked, **of_n2), needs), ("packages",)
    )
    assert all(check.ok for host in ("n1", "n3") for check in checks[host])
    return [check for check in checks["n2"] if not check.ok]


def test_missing_packages_are_reported_with_lines_that_install_them(facts_of: FactsOf) -> None:
    sure, unsure = failed_package_checks(
        facts_of, Needs(imports=IMPORTS, tensorflow=True), "cv2", "gym"
    )
    assert (sure.level, unsure.level) == ("error", "warning")
    assert sure.detail == "the program imports cv2 (train.py:2), and /usr/bin/python3 lacks it"
    assert unsure.detail == "the program may import gym (env.py:9), and /usr/bin/python3 lacks it"
    assert sure.fix == (
        "write `setup: {requirements: requirements.txt}` into the job file and "
        "opencv-python-headless, tensorflow==2.21.0, numpy into requirements.txt, then run "
        "`tfdeploy setup`; or: `tfdeploy exec --limit n2 -- /usr/bin/python3 -m pip "
        "install opencv-python-headless`"
    )
    [failure] = failed_package_checks(
        facts_of,
        Needs(imports=IMPORTS, requirements_found="../needs/requirements.txt"),
        "cv2",
        "numpy",
    )
    assert "cv2 (train.py:2), numpy (train.py:1), and /usr/bin/python3 lacks them" in failure.detail
    assert "{requirements: ../needs/requirements.txt}" in (failure.fix or "")


def test_fix_names_python_of_other_hosts_that_has_package(
    facts_of: FactsOf,
) -> None:
    seen = seen_of(facts_of, modules={"numpy": True})
    poor = replace(seen["n1"].facts, python="/usr/bin/python3.9", modules={"numpy": False})
    seen["n1"] = replace(seen["n1"], facts=poor)
    checks = check_hosts(ProbeResults(seen, Needs(imports=IMPORTS[2:])), ("packages",))
    [failure] = [check for check in checks["n1"] if not check.ok]
    assert failure.fix == (
        "set `python:` to /usr/bin/python3, which has numpy on other hosts, or: "
        "`tfdeploy exec --limit n1 -- /usr/bin/python3.9 -m pip install numpy`"
    )


def test_misspelt_import_of_own_module_is_recognised(facts_of: FactsOf) -> None:
    imports = (Import("helper", "train.py:2", always_reached=True),)
    [failure] = failed_package_checks(
        facts_of, Needs(imports=imports, own_modules={"helpers", "train"}), "helper"
    )
    assert failure.fix == "did you mean helpers, which is in the code?"


def test_packages_missing_from_environment_of_setup(facts_of: FactsOf) -> None:
    needs = Needs(imports=IMPORTS, requirements="requirements.txt")
    [failure] = failed_package_checks(
        facts_of,
        needs,
        "cv2",
        environment="/home/ml/tfdeploy/.envs/x",
        python="/home/ml/tfdeploy/.envs/x/bin/python",
    )
    assert (
        failure.fix
        == "write opencv-python-headless into requirements.txt, then run `tfdeploy setup`"
    )


@pytest.mark.parametrize(
    ("module", "left_out", "fix"),
    [
        ("urllib2", (), "urllib2 is a module of Python 2: `2to3 -w train.py`"),
        ("imp", (), "imp is a part of Python that this Python 3.11.2 lacks: write `python: PATH`"),
        ("tkinter", (), "tkinter is a part of Python"),
        (
            "model_pb2",
            ("model_pb2",),
            "model_pb2 lies in the code's folder and is not sent: git or .tfdeployignore",
        ),
    ],
)
def test_module_without_known_package(
    facts_of: FactsOf, module: str, left_out: tuple[str, ...], fix: str
) -> None:
    needs = Needs(
        imports=(Import(module, "train.py:3", always_reached=True),), unsent_imports=left_out
    )
    [failure] = failed_package_checks(facts_of, needs, module)
    assert (failure.level, (failure.fix or "")[: len(fix)]) == ("error", fix)


def test_host_with_only_servers_needs_no_package(
    facts_of: FactsOf, job: Job, inventory: Callable[..., Inventory]
) -> None:
    asked = replace(job, mode="ingraph")
    seen = seen_of(facts_of, protect=ALL)
    facts = {host: seen_host.facts for host, seen_host in seen.items()}
    plan = make_plan(
        inventory(chief="n1", worker="n2 n3"),
        asked,
        facts,
        release="r",
        sources={"train.py": ""},
        run="r",
        now=0.0,
        operator="o",
        options=Options(allow_open=True),
    )
    assert failed_package_checks(facts_of, Needs(imports=IMPORTS, plan=plan), "cv2") == []
    assert len(failed_package_checks(facts_of, Needs(imports=IMPORTS), "cv2")) == 1
    assert failed_package_checks(facts_of, Needs(imports=IMPORTS, hosts=("n1", "n3")), "cv2") == []


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
    assert most_frequent(["2.20.0", None, "2.21.0"]) == "2.21.0" and most_frequent([None]) is None
