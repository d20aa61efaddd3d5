"""Rows of a listing as hosts name them by a bitmap; see agent/bitmap.py."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tfdeploy.agent import bitmap
from tfdeploy.agent.listing import Listing
from tfdeploy.errors import BadAnswer


@dataclass(frozen=True)
class NamedRows:
    """Some rows of a listing. Hosts that lack the same share them: equal names, equal rows."""

    name: str
    rows: Sequence[int] = field(compare=False, repr=False)


class RowSet(Collection[int]):
    """Some rows of a listing of so many: a byte each, where a set of a million takes 100 MB."""

    def __init__(self, rows: Iterable[int], of: int) -> None:
        self._marks = bytearray(of)
        for row in rows:
            self._marks[row] = 1

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and bool(self._marks[row])

    def __iter__(self) -> Iterator[int]:
        return (row for row, mark in enumerate(self._marks) if mark)

    def __len__(self) -> int:
        return sum(self._marks)


def rows_of(packed: str, rows: Listing, host: str) -> array[int]:
    """The rows that it names: files with content. Raises BadAnswer."""
    content = unpacked(packed, host)
    if len(content) != (len(rows) + 7) // 8:
        raise BadAnswer("what it says of its files is no bitmap of the listing", where=host)
    numbers = array("I", bitmap.numbers_of(content))
    if any(row >= len(rows) or not rows.is_content(row) for row in numbers):
        raise BadAnswer("what it says of its files names rows that are no files", where=host)
    return numbers


def unpacked(packed: str, host: str) -> bytes:
    """Raises BadAnswer."""
    try:
        return bitmap.unpack(packed)
    except ValueError as error:
        raise BadAnswer(f"what it says of its files is no bitmap: {error}", where=host) from error
