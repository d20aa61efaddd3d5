"""Read the bitmaps by which hosts select files of a listing: one bit for each row of the listing.

See agent/bitmap.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tfdeploy.agent import bitmap
from tfdeploy.agent.listing import Listing
from tfdeploy.errors import BadAnswer


@dataclass(frozen=True)
class RowSelection:
    """Some rows of a listing of files, and a name for this selection.

    Selections with the same name have the same rows. So only names are compared, which is cheap,
    and hosts that lack the same rows can share one object.
    """

    name: str
    rows: Sequence[int] = field(compare=False, repr=False)


class RowSet(Collection[int]):
    """A set of row numbers of a listing.

    It is a byte array with one byte for each of the `total_rows` rows, to save memory: a Python set
    of a million ints would need 100 MB.
    """

    def __init__(self, rows: Iterable[int], total_rows: int) -> None:
        self._marks = bytearray(total_rows)
        for row in rows:
            self._marks[row] = 1

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and bool(self._marks[row])

    def __iter__(self) -> Iterator[int]:
        return (row for row, mark in enumerate(self._marks) if mark)

    def __len__(self) -> int:
        return sum(self._marks)


def rows_from_bitmap(packed: str, listing: Listing, host: str) -> array[int]:
    """Return the numbers of the rows that a host's bitmap marks.

    Raises BadAnswer if the bitmap does not have one bit for each row of the listing, or if it marks
    a row that is not a file with content, such as a folder.
    """
    content = unpack_bitmap(packed, host)
    if len(content) != (len(listing) + 7) // 8:
        raise BadAnswer("the host's bitmap of files does not fit the listing", where=host)
    numbers = array("I", bitmap.marked_numbers(content))
    if any(row >= len(listing) or not listing.has_own_content(row) for row in numbers):
        raise BadAnswer("the host's bitmap of files marks rows that are not files", where=host)
    return numbers


def unpack_bitmap(packed: str, host: str) -> bytes:
    """Return the unpacked bitmap. Raise BadAnswer if it is invalid."""
    try:
        return bitmap.unpack(packed)
    except ValueError as error:
        raise BadAnswer(f"the host's bitmap of files is invalid: {error}", where=host) from error
