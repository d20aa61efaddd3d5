"""Describe which files of a data set one host should have: all, or only some if it is split.

This module has no side effects.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tfdeploy.agent.bitmap import make_bitmap
from tfdeploy.agent.listing import FILE, NOT_LINKED, Listing
from tfdeploy.tree import DataListing

NO_PART = 0xFFFF  # the part number of folders and symbolic links, which belong to all parts


@dataclass(frozen=True)
class WantedFiles:
    """The files of a data set that one host should have, as the listing `rows`.

    `digest` is the hash of their content, and `attributes_digest` the hash of their attributes.
    `rows_in_whole_set` maps each row to its row number in the whole data set. `part_count` is the
    number of parts into which the data set is split, or 0 if it is not split. `part_of_row` has the
    part number of each row.
    """

    rows: Listing = field(repr=False)
    digest: str
    attributes_digest: str
    rows_in_whole_set: Sequence[int] = field(repr=False)
    part_count: int = 0
    part_of_row: array[int] | None = field(default=None, repr=False)

    @cached_property
    def packed_listing(self) -> bytes:
        """Return the packed listing."""
        return self.rows.pack()

    @cached_property
    def packed_part_numbers(self) -> bytes:
        """Return the part number of each row, packed for the verb data.commit."""
        return zlib.compress(self._part_number_bytes, 1)

    @cached_property
    def part_numbers_digest(self) -> str:
        """Return the digest of the part numbers, as the agent's datasets/files.py computes it."""
        return (
            hashlib.sha256(b"%d " % self.part_count + self._part_number_bytes).hexdigest()
            if self.part_of_row is not None
            else ""
        )

    @property
    def _part_number_bytes(self) -> bytes:
        part_of_row = array("H", self.part_of_row or ())
        if sys.byteorder == "big":
            part_of_row.byteswap()
        return part_of_row.tobytes()

    def bitmap(self, rows: Collection[int]) -> bytes:
        """Return a bitmap of this host's rows. A bit is set for each row that is in `rows`.

        `rows` are row numbers of the whole data set.
        """
        # A host that gets the whole data set has the same row numbers as the data set. So only
        # `rows` are visited, which is faster than a visit to all rows of a large data set.
        is_whole = isinstance(self.rows_in_whole_set, range)
        own_rows = (own for own, whole in enumerate(self.rows_in_whole_set) if whole in rows)
        return bytes(make_bitmap(rows if is_whole else own_rows, len(self.rows)))


def all_wanted_files(listing: DataListing) -> WantedFiles:
    """Return the files that a host should have if it gets the whole data set."""
    return WantedFiles(
        listing.rows, listing.digest, listing.attributes_digest, range(len(listing.rows))
    )


def wanted_files_of_part(
    listing: DataListing,
    row_parts: Sequence[int],
    part_count: int,
    file_bitmap: bytes | bytearray,
) -> WantedFiles:
    """Return the files that a host should have if it gets only a part of the data set.

    `file_bitmap`: a bitmap of all files, in which a bit is set for each file of the part.
    `row_parts`: for each row of the whole data set, its part number, or NO_PART if the row is a
    folder or a symbolic link.
    """
    rows, rows_in_whole_set = listing.rows.select_files(file_bitmap)
    return WantedFiles(
        rows,
        rows.digest(),
        rows.attributes_digest(),
        rows_in_whole_set,
        part_count,
        array("H", (row_parts[row] for row in rows_in_whole_set)),
    )


def part_of_each_row(listing: Listing, file_parts: Sequence[int]) -> array[int]:
    """Return the part number of each row of the listing; NO_PART for folders and symbolic links.

    `file_parts` has the part number of each file that is not a hard link, in the order of the
    listing.
    A hard link is in the same part as its file.
    """
    part_of_row = array("H", [NO_PART]) * len(listing)
    remaining_parts = iter(file_parts)
    for index, row in enumerate(listing):
        if row.kind == FILE:
            part_of_row[index] = (
                next(remaining_parts) if row.same_as == NOT_LINKED else part_of_row[row.same_as]
            )
    return part_of_row
