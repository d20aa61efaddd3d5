"""A host's audit log, and what the control side sees of an edit, a removal, a cut, a power cut and a full disk."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.needs import need
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.ownership import NotOurs
from tfdeploy.agent.serve import audit_log
from tfdeploy.agent.serve.call import Call, Context
from tfdeploy.model.audit_chain import Chain, Tail, check_chain

BY = {"operator": "me@desk", "key": "SHA256:said", "command": "c0ffee00"}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "w").mkdir(mode=0o700)
    return Context(str(tmp_path / "w"), "/agents/a1", "n1")


def note(context: Context, verb: str = "stop", outcome: str = "stopped", secrets: list[str] | None = None, **args: Any) -> None:
    call = Call(context, {"job": "j", "run": "r1", "by": BY, **args})
    call.secrets = secrets or []
    audit_log.note(call, verb, outcome)


def filled(context: Context, count: int) -> None:
    for number in range(count):
        note(context, run=f"r{number}")


def log(context: Context) -> Path:
    return Path(context.workdir, ".audit", os.uname().nodename, "log.jsonl")


def chain(context: Context, remembered: Tail | None = None) -> Chain:
    older, newer = audit_log.contents(context.workdir)
    return check_chain(older, newer, remembered)


def test_an_entry_says_who_did_what_from_where(context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.7 50000 192.0.2.1 22")
    note(context, "launch", "prepared", ["TOKEN"])
    assert chain(context).faults == ()
    (entry,) = chain(context).entries
    assert (entry.n, entry.host, entry.verb, entry.job, entry.run, entry.outcome) == (1, "n1", "launch", "j", "r1", "prepared")
    assert (entry.operator, entry.client, entry.key, entry.key_by) == ("me@desk", "192.0.2.7", "SHA256:said", "operator")
    assert entry.secrets == ["TOKEN"] and entry.agent == "a1" and abs(entry.time - log(context).stat().st_mtime) < 5
    assert log(context).stat().st_mode & 0o777 == 0o600 and log(context).parent.stat().st_mode & 0o777 == 0o700
    key = b"\0\0\0\x0bssh-ed25519and more"
    (tmp_path / "auth").write_text(f"publickey ssh-ed25519 {base64.b64encode(key).decode()}\n")
    monkeypatch.setenv("SSH_USER_AUTH", str(tmp_path / "auth"))
    note(context)
    by_sshd = chain(context).entries[1]
    fingerprint = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    assert (by_sshd.key, by_sshd.key_by) == (f"SHA256:{fingerprint}", "sshd")


def test_a_repeated_command_has_one_entry(context: Context) -> None:
    note(context)
    note(context)
    again = Context(context.workdir, context.agent_dir, "n1")  # its answer was lost, and a new session asks once more
    note(again)
    assert len(chain(context).entries) == 1
    note(Context(context.workdir, context.agent_dir, "n1"), by={**BY, "command": "another0"})
    note(Context(context.workdir, context.agent_dir, "n1"), by={})
    note(Context(context.workdir, context.agent_dir, "n1"), by="nonsense", run={"no": "name"}, job="../x")
    assert [entry.operator for entry in chain(context).entries] == ["me@desk", "me@desk", None, None]
    assert chain(context).entries[-1].job is None and chain(context).faults == ()


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str, str]] = {
    "an edit": (lambda rows: [*rows[:2], rows[2].replace(b"me@desk", b"you@desk"), *rows[3:]], "log.jsonl:3", "edited"),
    "an edit that breaks the line": (lambda rows: [*rows[:2], b"{}\n", *rows[3:]], "log.jsonl:3", "no entry"),
    "a line removed": (lambda rows: [*rows[:2], *rows[3:]], "log.jsonl:3", "1 entries before it were removed"),
    "the first lines removed": (lambda rows: rows[2:], "log.jsonl:1", "2 entries were removed before it"),
    "a line added": (lambda rows: [*rows[:2], rows[0], *rows[2:]], "log.jsonl:3", "does not go on"),
    "two lines exchanged": (lambda rows: [rows[0], rows[2], rows[1], *rows[3:]], "log.jsonl:2", "1 entries before it"),
    "the end removed": (lambda rows: rows[:3], "log.jsonl", "its end was cut off: it had 5 entries"),
    "a line cut": (lambda rows: [*rows[:4], rows[4][:20]], "log.jsonl", "its end was cut off"),
    "all removed": (lambda rows: [], "log.jsonl", "its end was cut off: it had 5 entries"),
    "foreign bytes": (lambda rows: [*rows, b"\xff\0\x1b]0;x\x07\n"], "log.jsonl:6", "no entry"),
}


@pytest.mark.parametrize(("change", "line", "what"), TAMPERED.values(), ids=TAMPERED)
def test_what_was_changed_shows_with_its_line(context: Context, change: Any, line: str, what: str) -> None:
    filled(context, 5)
    tail = chain(context).tail
    assert tail is not None and tail.n == 5 and chain(context, tail).faults == ()
    edit(log(context), change)
    faults = [fault for fault in chain(context, tail).faults if not fault.harmless]
    assert [fault for fault in faults if fault.line == line and what in fault.what], faults


def test_a_new_chain_in_place_of_the_old_shows(context: Context) -> None:
    filled(context, 3)
    tail = chain(context).tail
    log(context).unlink()
    filled(Context(context.workdir, "", "n1"), 6)
    assert chain(context).faults == ()
    (fault,) = chain(context, tail).faults
    assert "written anew: entry 3" in fault.what and not fault.harmless


def test_what_a_power_cut_tears_is_told_from_an_edit(context: Context) -> None:
    filled(context, 2)
    whole = log(context).read_bytes()
    for torn in (b'{"n":3,"time":17', b"\0\0\0\0", whole.splitlines()[0]):
        log(context).write_bytes(whole + torn)
        assert [(fault.line, fault.harmless) for fault in chain(context).faults] == [("log.jsonl:3", True)]
        note(Context(context.workdir, "", "n1"), run="after")
        assert [(fault.line, fault.harmless) for fault in chain(context).faults] == [("log.jsonl:3", True)]
        assert [entry.n for entry in chain(context).entries] == [1, 2, 3]
    edit(log(context), lambda rows: [*rows[:2], b"other\n", *rows[3:]])
    assert [fault.line for fault in chain(context).faults if not fault.harmless] == ["log.jsonl:3"]


def test_the_log_is_bounded_and_the_chain_goes_on(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES", 2000)
    older = log(context).with_name("log.1.jsonl")
    filled(context, 20)
    found = chain(context)
    assert found.faults == () and found.entries[0].n > 1 and found.entries[-1].n == 20
    assert [entry.n for entry in found.entries] == list(range(found.entries[0].n, 21))
    assert older.stat().st_size < 3000 and log(context).stat().st_size < 3000
    kept = older.read_bytes()
    edit(older, lambda rows: rows[1:])
    assert [fault.line for fault in chain(context).faults] == ["log.1.jsonl:1"]
    edit(older, lambda rows: rows[:-1])
    assert "log.jsonl:1" in [fault.line for fault in chain(context).faults]
    older.unlink()
    assert [fault.line for fault in chain(context).faults] == ["log.jsonl:1"]
    older.write_bytes(kept)
    log(context).rename(older)  # a power cut between the rename and the first entry of the new file
    filled(Context(context.workdir, "", "n1"), 1)
    assert chain(context).faults == () and chain(context).entries[-1].n == 21


def test_many_sessions_at_once_make_one_chain(context: Context) -> None:
    code = (
        "import sys; from tfdeploy.agent.serve import audit_log; from tfdeploy.agent.serve.call import Call, Context\n"
        "context = Context(sys.argv[1], '', 'n1')\n"
        "for n in range(25): audit_log.note(Call(context, {'run': 'r%s-%d' % (sys.argv[2], n)}), 'stop', 'stopped')"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, context.workdir, str(number)]) for number in range(4)]
    threads = [threading.Thread(daemon=True, target=filled, args=(Context(context.workdir, "", "n1"), 25)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(120) for process in running] == [0] * 4
    found = chain(context)
    assert found.faults == () and len(found.entries) >= 125


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "full"
    place.mkdir()
    need("mounts")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.fault("44 a full disk under the audit log")
def test_a_full_disk_is_said_and_counted_and_fails_nothing(full_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = Context(str(full_disk), "", "n1")
    filled(context, 2)
    with (full_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while filler.write(b"x" * 4096):
            pass
    before = len(chain(context).entries)
    for number in range(40):
        note(context, run=f"full-{number}")
    written = len(chain(context).entries)
    assert before < written < 42 and "the audit log has no entry of this stop: " in capsys.readouterr().err
    assert chain(context).faults == () and context.missed == 42 - written
    (full_disk / "filler").unlink()
    note(context, run="after")
    (fault,) = chain(context).faults
    assert fault.harmless and f"{42 - written} entries before it could not be written" in fault.what


def test_a_log_in_anothers_folder_or_behind_a_link_is_not_written(context: Context, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path(context.workdir, ".audit").symlink_to(elsewhere)
    with pytest.raises(NotOurs):
        audit_log.append(context.workdir, json.loads(json.dumps({"command": None})))
    note(context)
    assert context.missed == 1 and os.listdir(elsewhere) == []
    Path(context.workdir, ".audit").unlink()
    log(context).parent.mkdir(mode=0o700, parents=True)
    (tmp_path / "file").write_text("")
    log(context).symlink_to(tmp_path / "file")
    note(context)
    assert context.missed == 2 and (tmp_path / "file").read_text() == ""


def test_a_held_lock_is_not_waited_for_without_end(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(context, 1)
    monkeypatch.setattr(audit_log, "LOCK_S", 0.05)
    held = FileLock(str(log(context).with_name("lock")))
    assert held.acquire()
    note(context, run="waits")
    held.release()
    assert context.missed == 1 and len(chain(context).entries) == 1


def test_a_hostile_log_is_bounded() -> None:
    deep = b'{"n":' + b"[" * 5000 + b"\n"
    assert len(check_chain(b"", deep + b"x" * (1 << 20) + b"\n" + b"{}\n" * 200_000).faults) <= 100
    lines = b'{"n":1,"time":1e999,"host":"a","user":"","verb":"","outcome":"","prev":""}\n'
    assert check_chain(b"", lines).entries == ()


def test_the_verb_that_fails_has_an_entry_too(context: Context) -> None:
    from tfdeploy.agent.serve.dispatch import find_verb

    with pytest.raises(VerbError):
        find_verb("run.commit")(Call(context, {"run": "r9", "job": "j", "by": BY}))
    assert [(entry.verb, entry.run, entry.outcome) for entry in chain(context).entries] == [
        ("launch", "r9", "failed: unknown_run")
    ]
    find_verb("ping")(Call(context, {}))
    assert len(chain(context).entries) == 1
