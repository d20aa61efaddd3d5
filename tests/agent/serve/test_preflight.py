"""Test the facts about a host that only a preflight requests.

Files stand in for what this machine may lack: quotas, groups, and settings of logind.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.host import limits, logind, mounts, quota
from tfdeploy.agent.host.installed import StartedProgram, read_driver_version
from tfdeploy.agent.serve import preflight, probe
from tfdeploy.model.facts import HostFacts
from tfdeploy.text.typed import convert_untrusted


def facts(workdir: Path, **args: Any) -> Any:
    given = {
        "python": sys.executable,
        "ports": [40000, 40009],
        "gpus": "auto",
        "preflight": True,
        **args,
    }
    return probe.probe_host(Call(SessionContext(str(workdir), ""), given))["preflight"]


def test_this_machine(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    host_facts = facts(tmp_path)
    assert (
        host_facts["workdir_mode"] == 0o750
        and host_facts["mount"]["point"].startswith("/")
        and host_facts["available_bytes"] > 1 << 20
    )
    assert (host_facts["temporary"]["writable"] and host_facts["driver"] is None) or host_facts[
        "driver"
    ]
    assert (
        probe.probe_host(Call(SessionContext(str(tmp_path), ""), {"ports": [1, 0]}))["preflight"]
        is None
    )
    whole = probe.probe_host(
        Call(SessionContext(str(tmp_path), ""), {"ports": [1, 0], "preflight": True})
    )
    assert convert_untrusted(dict(whole), HostFacts).preflight is not None


def test_a_missing_folder_for_temporary_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert facts(tmp_path)["temporary"] == {
        "path": str(tmp_path / "missing"),
        "writable": False,
        "free_bytes": 0,
    }


def test_limits_of_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_of = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_CPU: 90}
    monkeypatch.setattr(
        limits.resource,
        "getrlimit",
        lambda number: (limit_of.get(number, resource.RLIM_INFINITY), 0),
    )
    assert limits.read_soft_limits() == {"open files": 64, "CPU seconds": 90}


def test_memory_is_what_the_narrowest_group_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "user.slice" / "job"
    inner.mkdir(parents=True)
    for folder, most, used, cached in ((inner, "max", 5, 0), (inner.parent, 1000, 700, 200)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")
    own = tmp_path / "cgroup"
    own.write_text("5:memory:/old\n0::/user.slice/job\n")
    assert limits._available_bytes_in_cgroups(str(own), str(tmp_path)) == [500]
    assert limits._available_bytes_in_cgroups(str(tmp_path / "none"), str(tmp_path)) == []


def test_the_mount_of_a_folder_is_the_innermost_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw,noexec 0 0\n/dev/sdb "
        "/home/with\\040space xfs rw 0 0\n"
        "tmpfs /home/ml tmpfs rw 0 0\n/dev/sdc /home/ml ext4 rw 0 0\nbad\n"
    )
    monkeypatch.setattr(mounts, "MOUNTS", str(table))
    for path, source in {
        "/home/ml/tfdeploy": "/dev/sdc",
        "/home/other": "server:/home",
        "/home/with space/x": "/dev/sdb",
        "/homes": "/dev/sda1",
    }.items():
        device = mounts.find_mount(path)
        assert device is not None and device["source"] == source, path
    assert mounts.read_mounts()[2][:3] == ["/dev/sdb", "/home/with space", "xfs"]
    monkeypatch.setattr(mounts, "MOUNTS", str(tmp_path / "none"))
    assert mounts.find_mount("/x") is None


QUOTA = """Disk quotas for user ml (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/home  {row}
      /dev/sda1       4       0       0       0       1       0       0       0
"""


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            "900 1000 2000 0 10 0 0 0",
            {"left_bytes": 1100 * 1024, "left_files": None, "over": False},
        ),
        (
            "1500* 1000 2000 604800 10 5 20 0",
            {"left_bytes": 500 * 1024, "left_files": 10, "over": True},
        ),
        ("3000* 1000 0 none 1 0 0 0", None),
        ("3000* 1000 0 0 1 0 0 0", {"left_bytes": 0, "left_files": None, "over": True}),
    ],
)
def test_a_quota_as_the_program_reports_it(tmp_path: Path, row: str, expected: Any) -> None:
    (tmp_path / "said").write_text(QUOTA.format(row=row))
    assert (
        quota.read_quota(
            StartedProgram(["sh", "-c", f"cat {tmp_path}/said; exit 1"]), "server:/home"
        )
        == expected
    )
    free = {"left_bytes": None, "left_files": None, "over": False}
    assert quota.read_quota(StartedProgram(["cat", str(tmp_path / "said")]), "/dev/sda1") == free
    assert (
        quota.read_quota(StartedProgram(["cat", str(tmp_path / "said")]), "/dev/none") is None
        and quota.read_quota(None, "x") is None
    )


@pytest.mark.parametrize(
    ("output", "version"), [("535.104.05\n535.104.05", "535.104.05"), ("[N/A]", None), ("", None)]
)
def test_the_driver(output: str, version: str | None) -> None:
    assert read_driver_version(StartedProgram(["echo", output])) == version


@pytest.mark.parametrize(
    ("settings", "user", "expected"),
    [
        ("", "ml", (False, False, True)),
        ("[Login]\n#KillUserProcesses=yes\nRemoveIPC=no\n", "ml", (False, False, False)),
        ("KillUserProcesses=yes\n", "ml", (True, True, True)),
        ("KillUserProcesses = yes\nKillExcludeUsers=root ml\n", "ml", (True, False, True)),
        ("KillUserProcesses=yes\nKillOnlyUsers=x\n", "ml", (True, False, True)),
        ("KillUserProcesses=yes\n", "root", (True, False, True)),
    ],
)
def test_logind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, user: str, expected: Any
) -> None:
    (tmp_path / "conf").write_text(settings)
    monkeypatch.setattr(logind, "SESSIONS", str(tmp_path))
    monkeypatch.setattr(logind, "_FILES", (str(tmp_path / "conf"),))
    monkeypatch.setattr(logind, "_FOLDERS", ())
    monkeypatch.setattr(logind, "_is_in_session", lambda: True)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    at_logout = logind.logout_effects(user)
    assert (
        logind.is_logout_kill_configured(),
        at_logout["kills"],
        at_logout["removes_ipc"],
    ) == expected
    monkeypatch.setattr(logind, "SESSIONS", str(tmp_path / "none"))
    assert (
        logind.logout_effects(user) == {"kills": False, "removes_ipc": False}
        and logind.is_lingering(user) is None
    )


@pytest.mark.parametrize(
    ("ports", "reserved", "expected"),
    [
        ((2222, 2299), "", 0),
        ((32760, 32769), "", 2),
        ((40000, 40009), "40000-40004,40009", 4),
        ((40000, 40009), "40000-40009", 0),
    ],
)
def test_ports_that_any_connection_may_get(
    monkeypatch: pytest.MonkeyPatch, ports: tuple[int, int], reserved: str, expected: int
) -> None:
    monkeypatch.setattr(
        preflight, "read_text", lambda path: reserved if "reserved" in path else "32768\t60999"
    )
    assert preflight._count_ephemeral_ports(ports) == expected
