"""Test that errors of several hosts are combined into one error.

This error has the message of each host, and the worst of their exit codes.
"""

from __future__ import annotations

import pytest

from tfdeploy.errors import HostFailed, HostUnreachable, Refused, TfdeployError, worst_exit_code
from tfdeploy.operations.outcomes import combine_errors, split_outcomes, values_or_error


def test_error_of_one_host_is_unchanged() -> None:
    error = HostUnreachable("timed out", next="is it on?")
    assert combine_errors("probe", {"n2": error}, 3) is error
    assert error.where == "n2"


def test_error_of_many_hosts_has_message_of_each() -> None:
    errors: dict[str, TfdeployError] = {
        "n1": Refused("no rsync", next="apt install rsync"),
        "n2": HostUnreachable("timed out"),
    }
    error = combine_errors("sync", errors, 8)
    assert error.exit_code == 4
    assert error.what.splitlines() == [
        "sync failed on 2 of 8 hosts:",
        "  n1: no rsync",
        "  n2: timed out",
    ]
    assert error.next == "apt install rsync"


def test_suggested_command_for_many_hosts_is_one_line_with_all_hosts() -> None:
    errors: dict[str, TfdeployError] = {
        f"n{n}": HostUnreachable("key not known", next=f"tfdeploy trust --limit n{n}")
        for n in range(1, 201)
    }
    error = combine_errors("probe", errors, 200)
    assert error.next == "tfdeploy trust --limit 'n[1-200]'"
    assert error.where == "n[1-200]"


def test_all_outcomes_or_error() -> None:
    assert values_or_error("x", {"n1": 1}) == {"n1": 1}
    with pytest.raises(HostFailed):
        values_or_error("x", {"n1": 1, "n2": HostFailed("no")})
    assert split_outcomes({"n1": 1, "n2": HostFailed("no")})[0] == {"n1": 1}


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([1, 3], 3), ([1, 4, 3], 4), ([4, 5], 5), ([1, 0], 1), ([130, 5], 130)],
)
def test_the_worst_exit_code_wins(codes: list[int], code: int) -> None:
    assert worst_exit_code(codes) == code
