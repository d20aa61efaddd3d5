"""Test that users can type every command that a message suggests, exactly as it is printed.

In a message, backquotes enclose a command, or a line or key of the job file or the inventory. The
text outside of backquotes is advice.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.command_lines import read_flags
from support.suggestions import Message, commands, messages
from tfdeploy.cli.verb_table import VERBS

OWN_COMMAND = re.compile(rf"\btfdeploy ({'|'.join(VERBS)})\b")
# Each of these two modules contains a command that users are not meant to type: lab/folder.py in
# the label of an SSH key, ui/report/page.py in the row that shows how a run was launched.
NOT_FOR_TYPING = ("lab/folder.py", "ui/report/page.py")
# Modules whose regular expressions match backquotes in programs and in their output.
PATTERN_FILES = (
    "agent/log/failure_reason.py",
    "config/foreign/setting_names.py",
    "planning/source/python2.py",
    "ui/feed_tree.py",
)
# Modules with help texts, which name verbs and flags in prose.
HELP_FILES = ("cli/topics.py", "cli/verb_help.py")
MESSAGES = [message for message in messages() if message.file not in (*PATTERN_FILES, *HELP_FILES)]


def place_of(message: Message) -> str:
    return message.place


def test_messages_of_package_are_found() -> None:
    verbs = {command.split()[0] for message in MESSAGES for command in commands(message)}
    assert {"exec", "stop", "status", "logs", "trust", "setup", "launch", "lab"} <= verbs


@pytest.mark.parametrize(
    "message", [message for message in MESSAGES if any(commands(message))], ids=place_of
)
def test_our_parser_accepts_each_command(
    message: Message, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in commands(message):
        words = shlex.split(command)
        if words == ["--help"]:
            continue
        try:
            read_flags(words)
        except SystemExit as asked_for_help:
            assert asked_for_help.code == 0


@pytest.mark.parametrize(
    "message", [message for message in MESSAGES if message.spans], ids=place_of
)
def test_text_in_backquotes_is_valid_shell_command(message: Message) -> None:
    assert message.text.count("`") % 2 == 0 or message.text.endswith("begin with @ ` or %")
    for span in message.spans:
        assert shlex.split(span)
        assert not span.startswith("-"), "a flag alone is no command: write it without backquotes"


def test_commands_are_in_backquotes() -> None:
    bare = [
        message
        for message in MESSAGES
        if OWN_COMMAND.search(message.advice) and message.file not in NOT_FOR_TYPING
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("code", "spans", "advice"),
    [
        ('X(next=f"`tfdeploy stop {run}`, or wait")', ["tfdeploy stop RUN"], ", or wait"),
        ('x = "a `b` " + on_host(n)', ["b", "tfdeploy exec --limit n3 -- true"], "a  "),
        ('x = f"at {a if b else c}: {shlex.quote(task)}"', [], "at n3: worker:0"),
        ('def f():\n    "a docstring `x`"', None, None),
        ('X(where="tfdeploy exec")', None, None),
    ],
)
def test_messages_are_read_from_syntax_trees(
    tmp_path: Path, code: str, spans: list[str] | None, advice: str | None
) -> None:
    (tmp_path / "module.py").write_text(code, encoding="utf-8")
    collected = list(messages(tmp_path))
    if spans is None:
        assert collected == []
        return
    (message,) = collected
    assert [re.sub(r"digits-\S+", "RUN", span) for span in message.spans] == spans
    assert message.advice == advice
