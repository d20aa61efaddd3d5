"""Test the view of a sync. It shows which host sends to which. If there are many hosts, it shows
only the important ones and the number of the others.

Without a terminal, the view prints a line from time to time.
"""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

from rich.console import Console

from support.rows import row_text
from tfdeploy.model.events import Event
from tfdeploy.ui.progress import SyncView
from tfdeploy.ui.terminal import Terminal

TOTAL = 60_000_000


def event(kind: Any, time: float, host: str | None = None, **data: Any) -> Event:
    return Event(kind=kind, time=time, host=host, data=data)


def make_view(hosts: int, **marked: list[str]) -> tuple[SyncView, io.StringIO]:
    """Return a view of a sync to `hosts` hosts, in which each host receives from the previous one.
    Each host has received 12 MB in 2 s.
    """
    out = io.StringIO()
    seen = SyncView(Terminal(out, None, False))
    names = ["", *(f"n{number}" for number in range(1, hosts + 1))]
    feeds = [(parent, child, 0) for parent, child in pairwise(names)]
    for name in names[1:]:
        seen(
            event(
                "transfer",
                1000.0,
                name,
                what="data d",
                state="begin",
                sent_bytes=0,
                total_bytes=TOTAL,
            )
        )
    seen(
        event(
            "broadcast",
            1000.1,
            what="data d",
            state="moving",
            stripes=1,
            feeds=feeds,
            **{"slow": [], "stuck": [], **marked},
        )
    )
    for name in names[1:]:
        seen(
            event(
                "transfer",
                1002.0,
                name,
                what="data d",
                state="moving",
                sent_bytes=12_000_000,
                total_bytes=TOTAL,
            )
        )
    return seen, out


def draw_texts(seen: SyncView, width: int = 100, height: int = 24) -> list[str]:
    return [row_text(row).rstrip() for row in seen.rows(width, height)]


def test_each_of_few_hosts_has_row() -> None:
    rows = draw_texts(make_view(3)[0])
    assert rows[0] == "here > n1 > n2 > n3"
    assert (
        rows[2]
        == "n2           #####................... 12 MB of 60 MB, 6.0 MB/s, 8.0 s left  data d, "
        "from n1"
    )
    assert (
        rows[-1].startswith(
            "all          #####................... 36 MB of 180 MB, 18 MB/s, 8.0 s left"
        )
        and len(rows) == 5
    )


def test_important_hosts_of_many_are_shown_and_others_counted() -> None:
    seen, _ = make_view(200, slow=["n77"], stuck=["n190"])
    seen(
        event(
            "transfer",
            1002.0,
            "n150",
            what="data d",
            state="failed",
            sent_bytes=12_000_000,
            total_bytes=TOTAL,
        )
    )
    for height in (10, 24):
        rows = draw_texts(seen, height=height)
        assert len(rows) <= height - 1
        shown = {row.split()[0] for row in rows[1:]}
        assert {"n77", "n150", "n190"} <= shown, rows
        assert "  slow  data d, from n76" in next(row for row in rows if row.startswith("n77"))
        assert rows[-2].split() == f"{200 - (len(rows) - 3)} more 12 MB, 6.0 MB/s".split()
    assert "(" in rows[0] and "n77" in rows[0] and "n190" in rows[0]


def test_tree_is_hidden_after_transfer() -> None:
    seen, _ = make_view(2)
    for name in ("n1", "n2"):
        seen(
            event(
                "transfer",
                1003.0,
                name,
                what="data d",
                state="done",
                sent_bytes=TOTAL,
                total_bytes=TOTAL,
            )
        )
    assert draw_texts(seen)[0].startswith("n1")


def test_remaining_time_is_that_of_slowest_host() -> None:
    seen, _ = make_view(3)
    for name, sent in (("n1", 50_000_000), ("n2", 50_000_000), ("n3", 14_000_000)):
        seen(
            event(
                "transfer",
                1004.0,
                name,
                what="data d",
                state="moving",
                sent_bytes=sent,
                total_bytes=TOTAL,
            )
        )
    # n3 lacks 46 MB, which take another 13 s at 3.5 MB/s.
    assert "13 s left" in draw_texts(seen)[-1]


def test_few_lines_without_terminal() -> None:
    seen, out = make_view(3, slow=["n2"])
    for second in range(1003, 1043):
        for name in ("n1", "n2", "n3"):
            sent = (second - 1000) * 1_000_000
            seen(
                event(
                    "transfer",
                    float(second),
                    name,
                    what="data d",
                    state="moving",
                    sent_bytes=sent,
                    total_bytes=TOTAL,
                )
            )
    lines = out.getvalue().splitlines()
    assert len(lines) == 2, lines
    assert lines[0] == "data d: 58 MB of 180 MB on 3 hosts, 3.0 MB/s, 41 s left, slow: n2", lines


def test_rows_on_terminal_leave_room_for_echo_of_interrupt() -> None:
    seen = SyncView(Terminal(io.StringIO(), 80, False))
    fields = {"what": "code", "state": "begin", "sent_bytes": 0, "total_bytes": TOTAL}
    seen(event("transfer", 1000.0, "n1", **fields))
    assert seen._bars is not None
    lines = Console(width=80, height=24).render_lines(seen._bars, pad=False)
    assert {sum(segment.cell_length for segment in line) for line in lines if line} == {78}
