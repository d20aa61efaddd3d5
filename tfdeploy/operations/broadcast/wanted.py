"""What one host is to have of a data set: all of it, or with `split` some of its files. Pure."""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tfdeploy.agent.bitmap import bitmap_of
from tfdeploy.agent.listing import FILE, NOT_LINKED, Listing
from tfdeploy.tree import DataListing

NO_PART = 0xFFFF  # of a row that is no file: folders and links are in all parts


@dataclass(frozen=True)
class Wanted:
    """`places`: for each row its row in the whole data set. `parts`: how many parts there are, 0
    where the set is not split; `of`: the part of each row."""

    rows: Listing = field(repr=False)
    digest: str
    attributes: str
    places: Sequence[int] = field(repr=False)
    parts: int = 0
    of: array[int] | None = field(default=None, repr=False)

    @cached_property
    def packed(self) -> bytes:
        return self.rows.pack()

    @cached_property
    def parts_packed(self) -> bytes:
        return zlib.compress(self._of_bytes, 1)

    @cached_property
    def parts_name(self) -> str:
        """As the agent's serve/datasets/parts.py makes it."""
        return (
            hashlib.sha256(b"%d " % self.parts + self._of_bytes).hexdigest()
            if self.of is not None
            else ""
        )

    @property
    def _of_bytes(self) -> bytes:
        of = array("H", self.of or ())
        if sys.byteorder == "big":
            of.byteswap()
        return of.tobytes()

    def bitmap(self, rows: Collection[int]) -> bytes:
        """Of its own rows: those that are `rows` of the whole data set."""
        same = isinstance(self.places, range)  # then most of a large set is not looked at
        own = rows if same else (own for own, place in enumerate(self.places) if place in rows)
        return bytes(bitmap_of(own, len(self.rows)))


def whole(listing: DataListing) -> Wanted:
    return Wanted(listing.rows, listing.digest, listing.attributes, range(len(listing.rows)))


def some(
    listing: DataListing, owners: Sequence[int], parts: int, files: bytes | bytearray
) -> Wanted:
    """Those files that the bitmap names. `owners`: the part of each row of the whole data set,
    NO_PART for what is no file."""
    rows, places = listing.rows.only(files)
    return Wanted(
        rows,
        rows.digest(),
        rows.attributes(),
        places,
        parts,
        array("H", (owners[place] for place in places)),
    )


def row_owners(listing: Listing, owners: Sequence[int]) -> array[int]:
    """The part of each row, from the part of each file with content, in order."""
    owner_of_row = array("H", [NO_PART]) * len(listing)
    given = iter(owners)
    for index, row in enumerate(listing):
        if row.kind == FILE:
            owner_of_row[index] = (
                next(given) if row.same_as == NOT_LINKED else owner_of_row[row.same_as]
            )
    return owner_of_row
