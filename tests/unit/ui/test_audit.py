"""Test the output of `tfdeploy audit`. Hosts for which the same command helps are in one row, and
the last line has the result.

Control characters in texts from hosts are removed.
"""

from __future__ import annotations

import io
from typing import Any

from tfdeploy.ui.audit import show_audit
from tfdeploy.ui.terminal import Terminal

ENTRY = {
    "time": "2026-11-22T10:15:00.120Z",
    "host": "n1",
    "operator": "me@desk",
    "user": "ml",
    "from": "192.0.2.7",
    "verb": "launch",
}
ENTRY |= {
    "key": "SHA256:" + "k" * 43,
    "key_by": "operator",
    "job": "digits",
    "run": "digits-1",
    "outcome": "prepared",
}
FOUND: dict[str, Any] = {
    "ok": True,
    "entries": [
        ENTRY,
        {**ENTRY, "host": "n2", "time": "2026-11-22T10:15:00.980Z"},
        {**ENTRY, "key_by": "sshd", "verb": "stop"},
    ],
    "ports": [{"host": "n1", "port": 2223, "task": None, "protect": "peers"}],
    "admitted": [],
    "secrets": [
        {"host": "n1", "run": "digits-1", "name": "TOKEN", "delivered": True, "forgotten": None}
    ],
    "left": [],
    "faults": [],
    "versions": {"operator": "1.0", "hosts": []},
    "errors": [],
}


def audit_text(**changes: Any) -> str:
    out = io.StringIO()
    show_audit(Terminal(out, None, False), {**FOUND, **changes})
    return out.getvalue()


def test_hosts_with_same_command_are_one_row() -> None:
    rows = [line.split() for line in audit_text().splitlines() if "digits-1" in line]
    assert rows[0][-2:] == ["prepared", "n[1-2]"] and "(it says)" in " ".join(rows[0])
    assert rows[1][-4:] == ["stop", "digits-1", "prepared", "n1"] and "(it says)" not in " ".join(
        rows[1]
    )
    assert (
        "mesh" in audit_text()
        and "peers" in audit_text()
        and rows[2] == ["TOKEN", "n1", "digits-1", "yes", "?"]
    )
    assert audit_text().endswith(
        "no run has left anything behind: no process, no secret, no incomplete or foreign file "
        "(live runs: `tfdeploy runs`; files of ended runs: `tfdeploy clean --dry-run`)\n"
    )


def test_last_line_has_result() -> None:
    remaining = [{"host": "n1", "kind": "secret", "path": "/w/env.json"}]
    assert audit_text(ok=False, left=remaining).endswith("something is left\n")
    fault = {"host": "n2", "line": "log.jsonl:3", "what": "no entry", "harmless": True}
    assert "n2    log.jsonl:3  no entry" in audit_text(faults=[fault])
    away = audit_text(ok=False, errors=[{"host": "n3", "error": "no answer"}])
    assert (
        "no answer from n3, so this report is incomplete" in away and "nothing is left" not in away
    )


def test_text_of_host_is_sanitised() -> None:
    hostile = "\x1b]52;c;x\x07\x9b31m\u202e\n[/red]"
    entry = {**ENTRY, **dict.fromkeys(("operator", "from", "key", "outcome", "run"), hostile)}
    text = audit_text(
        entries=[entry],
        left=[{"host": "n1", "kind": "foreign", "path": hostile}],
        faults=[{"host": "n1", "line": hostile, "what": hostile, "harmless": False}],
        secrets=[
            {"host": "n1", "run": hostile, "name": hostile, "delivered": True, "forgotten": True}
        ],
        versions={
            "operator": "1",
            "hosts": [
                {
                    "host": "n1",
                    "tfdeploy": hostile,
                    "agent": hostile,
                    "python": hostile,
                    "tensorflow": None,
                }
            ],
        },
    )
    assert not set(text) & set("\x1b\x07\x9b\u202e") and "[/red]" in text
