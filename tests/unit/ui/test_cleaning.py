"""Test the output of `tfdeploy clean`. Each item that can be removed has one row with all hosts
that have the item. The output says why an item is kept.
"""

from __future__ import annotations

import io

from tfdeploy.model.answers.clean import CleanItem
from tfdeploy.ui.cleaning import explain_kept_items, show_removed_items
from tfdeploy.ui.terminal import Terminal


def item(name: str, size: int = 0, stays: str = "", live: bool = False) -> CleanItem:
    return CleanItem(
        kind="release", job="digits", name=name, bytes=size, ended=None, stays=stays, live=live
    )


def test_item_on_many_hosts_is_one_row_with_total_size() -> None:
    out = io.StringIO()
    things = {f"n{number}": [item("r1", 2_000_000)] for number in range(1, 5)} | {
        "n9": [item("r2\x1b[2J", 1000)]
    }
    show_removed_items(Terminal(out, 100, False), things, {"run1": 4096, "run2": 4096})
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert rows[1:] == [
        ["release", "digits", "r1", "8.0", "MB", "n[1-4]"],
        ["release", "digits", "r2", "1.0", "kB", "n9"],
        ["record", "2", "runs", "8.2", "kB", "this", "machine"],
    ]


def test_single_record_is_described_in_singular() -> None:
    out = io.StringIO()
    show_removed_items(Terminal(out, 100, False), {}, {"run1": 4096})
    assert out.getvalue().splitlines()[1].split()[:3] == ["record", "1", "run"]


def test_reason_for_keeping_is_given_once() -> None:
    things = {f"n{number}": [item("r1", stays="run live uses it")] for number in range(1, 4)}
    assert explain_kept_items(things) == ["[n[1-3]] release r1 stays: run live uses it"]
