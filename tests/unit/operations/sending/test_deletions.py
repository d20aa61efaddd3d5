"""Test that tfdeploy asks the user before a sync deletes most files of a data set on a host. If the
sync deletes a smaller part, tfdeploy does not ask.
"""

from __future__ import annotations

import io
from typing import Any

import pytest

from tfdeploy.cli.consent import make_confirm
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.errors import Refused
from tfdeploy.operations.sending.deletions import (
    deletion_notes,
    needs_confirmation,
    never_confirm,
    refuse_unconfirmed_deletions,
)


@pytest.mark.parametrize(
    ("losing", "files", "asks"),
    [
        (0, 0, False),
        (0, 100, False),
        (5, 5, False),
        (6, 6, True),
        (6, 12, False),
        (7, 12, True),
        (50, 100, False),
        (51, 100, True),
    ],
)
def test_question_is_asked_only_above_half_and_minimum(losing: int, files: int, asks: bool) -> None:
    assert needs_confirmation(losing, files) == asks


def test_deletion_without_consent_is_refused_with_numbers_and_hosts() -> None:
    losing = {"digits": {"n2": (900, 1000), "n1": (1900, 2000)}}
    with pytest.raises(Refused) as caught:
        refuse_unconfirmed_deletions(losing, never_confirm)
    assert "data digits lacks 1,900 of the 2,000 files that are on n[1-2]" in caught.value.what
    assert caught.value.next is not None and "-y" in caught.value.next
    asked: list[str] = []
    refuse_unconfirmed_deletions(losing, lambda what: not asked.append(what))
    assert len(asked) == 1


def test_few_files_are_deleted_without_question_and_reported() -> None:
    losing = {"digits": {"n1": (4, 5), "n2": (4, 5), "n3": (1, 5)}}
    refuse_unconfirmed_deletions(losing, never_confirm)
    deleted = "the hosts delete these files as soon as no run reads them"
    assert deletion_notes(losing) == [
        f"data digits: the source lacks 4 of the 5 files that are on n[1-2]: {deleted}",
        f"data digits: the source lacks 1 of the 5 files that are on n3: {deleted}",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("flags", "typed", "agreed"),
    [
        ({"yes": True}, None, True),
        ({}, None, False),
        ({}, "yes\n", True),
        ({}, "\n", False),
        ({"json": True}, "yes\n", False),
    ],
)
def test_question_is_asked_once_and_only_on_terminal(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], typed: str | None, agreed: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n") if typed is None else Terminal(typed))
    monkeypatch.setattr("sys.stderr", terminal)
    agree = make_confirm(CommonFlags(**flags))
    assert [agree("900 files go?"), agree("900 files go?")] == [agreed, agreed]
    assert terminal.getvalue().count("900 files go? (yes/no) ") == (
        1 if typed is not None and not flags else 0
    )
