"""Test that suggested commands for many hosts are merged into a few commands that the user can
type.

No host is left out.
"""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.text.allowed import NAME
from tfdeploy.text.names import expand_ranges, fold_names, split_outside_brackets
from tfdeploy.text.nexts import merge_next_commands


def trust(host: str) -> str:
    return f"tfdeploy trust --limit {host}"


def test_commands_that_differ_only_in_host_are_folded() -> None:
    assert merge_next_commands({f"n{n}": trust(f"n{n}") for n in range(1, 5)}) == [
        "tfdeploy trust --limit 'n[1-4]'"
    ]
    exec_commands = {
        name: f"`tfdeploy exec --limit {name} -- true` shows when" for name in ("n1", "n10", "big")
    }
    assert merge_next_commands(exec_commands) == [
        "`tfdeploy exec --limit 'n[1,10],big' -- true` shows when"
    ]


def test_name_after_exclude_is_folded() -> None:
    nexts = {
        name: f"is it up? `--limit {name} -- true` or without it: --exclude {name}"
        for name in ("n1", "n2", "n3")
    }
    assert merge_next_commands(nexts) == [
        "is it up? `--limit 'n[1-3]' -- true` or without it: --exclude 'n[1-3]'"
    ]


def test_single_host_and_single_text_are_unchanged() -> None:
    assert merge_next_commands({"n1": trust("n1"), "n2": None}) == ["tfdeploy trust --limit n1"]
    assert merge_next_commands({"n1": "apt install rsync", "n2": "apt install rsync"}) == [
        "apt install rsync"
    ]
    # The command for n1 names another host, n11, so it is not merged with the command for n11.
    assert merge_next_commands({"n1": trust("n11"), "n11": trust("n11")}) == [trust("n11")] * 2


def test_many_different_commands_name_all_hosts() -> None:
    lines = merge_next_commands({f"n{n}": f"rm -r /scratch/{n}" for n in range(1, 201)})
    assert lines == [*(f"rm -r /scratch/{n}" for n in range(1, 5)), "do the same for n[5-200]"]


def test_first_command_represents_commands_for_other_addresses() -> None:
    nexts = {f"n{n}": f"`ssh -v -p 22{n} ml@192.0.2.{n}`" for n in (1, 2, 3)}
    assert merge_next_commands(nexts) == ["`ssh -v -p 221 ml@192.0.2.1`; do the same for n[2-3]"]


names = st.from_regex(NAME, fullmatch=True).filter(lambda name: not name.endswith("\n"))


@given(
    st.lists(
        st.one_of(
            names,
            st.integers(0, 300).map(lambda n: f"n{n:02}"),
            st.integers(0, 300).map(lambda n: f"n{n}"),
        )
    )
)
def test_folded_commands_name_same_hosts(hosts: list[str]) -> None:
    lines = merge_next_commands({host: trust(host) for host in hosts})
    if hosts:
        (line,) = lines
        *_, pattern = shlex.split(line)
        assert {
            name for part in split_outside_brackets(pattern) for name in expand_ranges(part)
        } == set(hosts)
        assert pattern == fold_names(hosts)
    else:
        assert lines == []
