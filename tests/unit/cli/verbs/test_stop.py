"""Test the rows of hosts in the result of `tfdeploy stop`."""

from __future__ import annotations

import pytest

from tfdeploy.cli.verbs.stop import make_rows
from tfdeploy.errors import HostUnreachable
from tfdeploy.model.answers.runs import RunEnded


def ended(*, earlier: bool) -> RunEnded:
    return RunEnded(survivors=[], seconds=0.1, messenger=False, had_ended=earlier)


@pytest.mark.parametrize(("first", "earlier"), [(False, False), (True, True)])
def test_a_host_had_ended_before_only_if_all_had(first: bool, earlier: bool) -> None:
    unreachable = HostUnreachable("no answer", where="n3", next="wait")
    rows = make_rows({"n1": ended(earlier=first), "n2": ended(earlier=True), "n3": unreachable})
    assert [row["had_ended"] for row in rows[:2]] == [earlier, earlier]
    assert [row["ok"] for row in rows] == [True, True, False]
