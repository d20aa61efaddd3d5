"""Test the audit log of a host, and what the control machine reads from this log after a power cut
or on a full disk.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.needs import require
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.ownership import UntrustedPath
from tfdeploy.agent.serve import audit_log
from tfdeploy.model.answers.audit import AuditLog, parse_audit_log

BY = {"operator": "me@desk", "key": "SHA256:said", "command": "c0ffee00"}


@pytest.fixture
def context(tmp_path: Path) -> SessionContext:
    (tmp_path / "w").mkdir(mode=0o700)
    return SessionContext(str(tmp_path / "w"), "/agents/a1", "n1")


def record(
    context: SessionContext,
    verb: str = "stop",
    outcome: str = "stopped",
    secrets: list[str] | None = None,
    **args: Any,
) -> None:
    call = Call(context, {"job": "j", "run": "r1", "by": BY, **args})
    call.secrets = secrets or []
    audit_log.record_action(call, verb, outcome)


def filled(context: SessionContext, count: int) -> None:
    for number in range(count):
        record(context, run=f"r{number}")


def log(context: SessionContext) -> Path:
    return Path(context.workdir, ".audit", os.uname().nodename, "log.jsonl")


def shown(context: SessionContext) -> AuditLog:
    return parse_audit_log(*audit_log.read_logs(context.workdir))


def runs(context: SessionContext) -> list[str | None]:
    return [entry.run for entry in shown(context).entries]


def test_an_entry_says_who_did_what_from_where(
    context: SessionContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.7 50000 192.0.2.1 22")
    record(context, "launch", "prepared", ["TOKEN"])
    assert shown(context).faults == ()
    (entry,) = shown(context).entries
    assert (entry.host, entry.verb, entry.job, entry.run, entry.outcome) == (
        "n1",
        "launch",
        "j",
        "r1",
        "prepared",
    )
    assert (entry.operator, entry.client, entry.key, entry.key_by) == (
        "me@desk",
        "192.0.2.7",
        "SHA256:said",
        "operator",
    )
    assert (
        entry.secrets == ["TOKEN"]
        and entry.agent == "a1"
        and abs(entry.time - log(context).stat().st_mtime) < 5
    )
    assert (
        log(context).stat().st_mode & 0o777 == 0o600
        and log(context).parent.stat().st_mode & 0o777 == 0o700
    )
    key = b"\0\0\0\x0bssh-ed25519and more"
    (tmp_path / "auth").write_text(f"publickey ssh-ed25519 {base64.b64encode(key).decode()}\n")
    monkeypatch.setenv("SSH_USER_AUTH", str(tmp_path / "auth"))
    record(context)
    by_sshd = shown(context).entries[1]
    fingerprint = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    assert (by_sshd.key, by_sshd.key_by) == (f"SHA256:{fingerprint}", "sshd")


def test_a_repeated_command_has_one_entry(context: SessionContext) -> None:
    record(context)
    record(context)
    # The first answer was lost, so a new session repeats the request.
    again = SessionContext(context.workdir, context.agent_dir, "n1")
    record(again)
    assert len(shown(context).entries) == 1
    record(
        SessionContext(context.workdir, context.agent_dir, "n1"), by={**BY, "command": "another0"}
    )
    record(SessionContext(context.workdir, context.agent_dir, "n1"), by={})
    record(
        SessionContext(context.workdir, context.agent_dir, "n1"),
        by="nonsense",
        run={"no": "name"},
        job="../x",
    )
    assert [entry.operator for entry in shown(context).entries] == [
        "me@desk",
        "me@desk",
        None,
        None,
    ]
    assert shown(context).entries[-1].job is None and shown(context).faults == ()


def test_a_torn_last_line_is_named_and_the_next_entry_is_a_line_of_its_own(
    context: SessionContext,
) -> None:
    filled(context, 2)
    whole = log(context).read_bytes()
    for torn in (b'{"time":17', b"\0\0\0\0", b"\xff\0\x1b]0;x\x07"):
        log(context).write_bytes(whole + torn)
        assert [line for line, _ in shown(context).faults] == ["log.jsonl:3"]
        record(SessionContext(context.workdir, "", "n1"), run="after")
        assert [line for line, _ in shown(context).faults] == ["log.jsonl:3"]
        assert runs(context) == ["r0", "r1", "after"]


def test_a_log_that_an_older_version_chained_is_read_and_gone_on_with(
    context: SessionContext,
) -> None:
    filled(context, 1)
    old = json.loads(log(context).read_bytes())
    chained = [{"n": 7, "prev": "a" * 64, "older": 3}, {"n": 8, "prev": "b" * 64, "torn": "c" * 64}]
    lines = [json.dumps({**old, "run": f"old{each['n']}", **each}) for each in chained]
    log(context).write_text(lines[0] + "\ntorn\n" + lines[1] + "\n")
    record(SessionContext(context.workdir, "", "n1"), run="new")
    assert runs(context) == ["old7", "old8", "new"] and [
        line for line, _ in shown(context).faults
    ] == ["log.jsonl:2"]


def test_the_log_is_bounded(context: SessionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES", 2000)
    older = log(context).with_name("log.1.jsonl")
    filled(context, 20)
    first = int(str(runs(context)[0])[1:])
    assert (
        shown(context).faults == ()
        and first > 0
        and runs(context) == [f"r{number}" for number in range(first, 20)]
    )
    assert older.stat().st_size < 3000 and log(context).stat().st_size < 3000
    # Now only the older file exists, as after a power cut between the rename and the first entry of
    # the new file.
    log(context).rename(older)
    record(SessionContext(context.workdir, "", "n1"), run="after")
    assert shown(context).faults == () and runs(context)[-2:] == ["r19", "after"]


def test_many_sessions_at_once_make_one_log(context: SessionContext) -> None:
    code = (
        "import sys; from tfdeploy.agent.serve import audit_log; from tfdeploy.agent.call "
        "import Call, SessionContext\n"
        "context = SessionContext(sys.argv[1], '', 'n1')\n"
        "for n in range(25): "
        "audit_log.record_action(Call(context, {'run': 'r%s-%d' % (sys.argv[2], n)}), "
        "'stop', 'stopped')"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, context.workdir, str(number)])
        for number in range(4)
    ]
    threads = [
        threading.Thread(
            daemon=True, target=filled, args=(SessionContext(context.workdir, "", "n1"), 25)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(120) for process in running] == [0] * 4
    entries = shown(context)
    assert entries.faults == () and len(entries.entries) >= 125


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "full"
    mount_point.mkdir()
    require("mounts")
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(mount_point)], check=True
    )
    yield mount_point
    subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


@pytest.mark.fault("44 a full disk under the audit log")
def test_a_full_disk_is_said_and_counted_and_fails_nothing(
    full_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = SessionContext(str(full_disk), "", "n1")
    filled(context, 2)
    with (
        (full_disk / "filler").open("wb", buffering=0) as filler,
        pytest.raises(OSError, match="No space"),
    ):
        while filler.write(b"x" * 4096):
            pass
    before = len(shown(context).entries)
    for number in range(40):
        record(context, run=f"full-{number}")
    written = len(shown(context).entries)
    assert (
        before < written < 42
        and "cannot record this stop in the audit log: " in capsys.readouterr().err
    )
    assert shown(context).faults == () and context.unrecorded_actions == 42 - written
    (full_disk / "filler").unlink()
    record(context, run="after")
    ((_, what),) = shown(context).faults
    assert f"{42 - written} entries before this line could not be written" in what


def test_a_log_in_anothers_folder_or_behind_a_link_is_not_written(
    context: SessionContext, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path(context.workdir, ".audit").symlink_to(elsewhere)
    with pytest.raises(UntrustedPath):
        audit_log.append_entry(context.workdir, json.loads(json.dumps({"command": None})))
    record(context)
    assert context.unrecorded_actions == 1 and os.listdir(elsewhere) == []
    Path(context.workdir, ".audit").unlink()
    log(context).parent.mkdir(mode=0o700, parents=True)
    (tmp_path / "file").write_text("")
    log(context).symlink_to(tmp_path / "file")
    record(context)
    assert context.unrecorded_actions == 2 and (tmp_path / "file").read_text() == ""


def test_a_held_lock_is_not_waited_for_without_end(
    context: SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(context, 1)
    monkeypatch.setattr(audit_log, "LOCK_S", 0.05)
    held = FileLock(str(log(context).with_name("lock")))
    assert held.acquire()
    record(context, run="waits")
    held.release()
    assert context.unrecorded_actions == 1 and len(shown(context).entries) == 1


def test_a_hostile_log_is_bounded() -> None:
    deep = b'{"n":' + b"[" * 5000 + b"\n"
    assert (
        len(parse_audit_log(b"", deep + b"x" * (1 << 20) + b"\n" + b"{}\n" * 200_000).faults) <= 100
    )
    lines = b'{"time":1e999,"host":"a","user":"","verb":"","outcome":""}\n'
    assert parse_audit_log(b"", lines).entries == ()
    assert len(parse_audit_log(b"", lines.replace(b"1e999", b"1e9")).entries) == 1


def test_the_verb_that_fails_has_an_entry_too(context: SessionContext) -> None:
    from tfdeploy.agent.serve.server import find_verb

    with pytest.raises(VerbError):
        find_verb("run.commit")(Call(context, {"run": "r9", "job": "j", "by": BY}))
    assert [(entry.verb, entry.run, entry.outcome) for entry in shown(context).entries] == [
        ("launch", "r9", "failed: unknown_run")
    ]
    find_verb("ping")(Call(context, {}))
    assert len(shown(context).entries) == 1
