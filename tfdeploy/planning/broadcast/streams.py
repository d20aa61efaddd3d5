"""Groups the files of a split data set into streams.

All files of one stream have the same receivers and the same sender.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Stream:
    """Files of a data set that one sender sends to all `receivers`.

    `rows`: the row numbers of the files in the data set's file list. `lender`: the host that has
    all of these files and sends them. If it is None, the control machine sends them.
    """

    receivers: tuple[str, ...]
    lender: str | None
    rows: list[int] | array[int] = field(default_factory=list)


def assign_streams(
    wanted_rows: Mapping[str, Sequence[int]],
    missing_rows: Mapping[str, Sequence[int]],
    sizes: Sequence[int],
    held_rows: Mapping[str, Sequence[int]],
    origin: str | None = None,
) -> list[Stream]:
    """Return the streams that send each host the files it lacks. An empty file is not sent.

    A file is identified by its row number in the file list. `wanted_rows`: {host: all files that
    the host should have}. `missing_rows`: {host: the wanted files that it lacks}. `held_rows`:
    {host: the files that it has and may send}. `origin`: a host that has all files.

    If several hosts have a file, it is sent by the host that has the fewest bytes to send so far.
    Hosts that should have the same files get them in one stream, to keep the number of streams low.
    """
    moved = sorted({row for rows in missing_rows.values() for row in rows if sizes[row]})
    wanted_by, held_by = _hosts_by_row(wanted_rows, moved), _hosts_by_row(held_rows, moved)
    always = [origin] if origin is not None else []
    lent_bytes = dict.fromkeys([*held_rows, *always], 0)
    stream_of: dict[tuple[tuple[str, ...], str | None], Stream] = {}
    for row in moved:
        receivers = tuple(wanted_by[row])
        candidates = [*held_by[row], *always]
        lender = min(candidates, key=lent_bytes.__getitem__) if candidates else None
        if lender is not None:
            lent_bytes[lender] += sizes[row]
        stream_of.setdefault((receivers, lender), Stream(receivers, lender)).rows.append(row)
    for stream in stream_of.values():
        rows = set(stream.rows)
        stream.receivers = tuple(
            host for host in stream.receivers if not rows.isdisjoint(missing_rows[host])
        )
    return list(stream_of.values())


def _hosts_by_row(
    rows_of: Mapping[str, Sequence[int]], wanted_rows: list[int]
) -> dict[int, list[str]]:
    hosts_of_row: dict[int, list[str]] = {row: [] for row in wanted_rows}
    for host, rows in rows_of.items():
        for row in rows:
            if row in hosts_of_row:
                hosts_of_row[row].append(host)
    return hosts_of_row
