"""Test what messages on the terminal may contain."""

from __future__ import annotations

import pytest

from tfdeploy.cli.output import message_sink, print_message


def test_messages_are_sanitised(capsys: pytest.CaptureFixture[str]) -> None:
    print_message("[n1] \x1b]0;title\x07text\u202e\n  next: `tfdeploy \x9b31mruns`")
    assert capsys.readouterr().err == "[n1] text\n  next: `tfdeploy runs`\n"


def test_messages_to_python_api_are_sanitised() -> None:
    messages: list[str] = []
    token = message_sink.set(messages.append)
    try:
        print_message("a\x07b")
    finally:
        message_sink.reset(token)
    assert messages == ["ab"]
