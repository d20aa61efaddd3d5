"""A data set on its way: the listing of what it will be, what this host lacks of it, and the folder
where that grows.

The folder of before stays as it is, and usable, until all is here. What a killed sync left is gone
on with.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import weakref
from array import array

from tfdeploy.agent import listing
from tfdeploy.agent.annotations import Any, Iterator, Sequence, Tuple
from tfdeploy.agent.bitmap import is_marked, mark, numbers_of
from tfdeploy.agent.broadcast.piece_files import Moved
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic
from tfdeploy.agent.host.disk import require_space
from tfdeploy.agent.listing import FILE, FOLDER, Listing
from tfdeploy.agent.serve.datasets import versions as data_versions

_in_use: "weakref.WeakValueDictionary[Tuple[str, int, int, int], Listing]" = (
    weakref.WeakValueDictionary()
)


class Staging:
    """Of the data set in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.old = data_versions.newest(folder)
        self.new = data_versions.beside(folder, "new")
        self._listing = data_versions.beside(folder, "listing")

    def begin(self, packed: bytes, reserve: int) -> bytearray:
        """A bitmap of the rows that this host lacks. What an earlier sync left and this one has no
        use for is removed.

        Raises VerbError bad_listing, disk; OSError.
        """
        wanted = unpack(packed)
        lacking = self.lacking(wanted)
        os.makedirs(self.new, mode=0o700, exist_ok=True)
        staged_bytes = self._tidy(wanted, lacking)
        needed = sum(wanted.allocated(row) for row in numbers_of(lacking)) - staged_bytes
        require_space(self.new, "the data", needed, reserve=reserve)
        atomic.write_bytes(self._listing, packed)
        return lacking

    def listing(self) -> Listing:
        """As it was begun. What is in use in this session already is not read again: of a million
        files it takes 60 MB. Raises VerbError not_begun."""
        try:
            with open(self._listing, "rb") as file:
                about = os.fstat(file.fileno())
                key = self._listing, about.st_ino, about.st_mtime_ns, about.st_size
                cached = _in_use.get(key)
                if cached is None:
                    cached = _in_use[key] = unpack(file.read())
                return cached
        except FileNotFoundError as error:
            raise VerbError(
                "not_begun", "no data set was begun in %s" % self.folder, where=self.folder
            ) from error

    def moved(self, moved: bytes) -> Sequence[Moved]:
        """The files of a broadcast, which moves the rows of this bitmap. Raises VerbError
        not_begun, bad_listing."""
        wanted = self.listing()
        rows = array("Q")
        for index in numbers_of(moved):
            if index >= len(wanted) or not wanted.is_content(index):
                raise VerbError("bad_listing", "row %d of the listing is no file" % index)
            rows.append(index)
        lacking = self.lacking(wanted)
        halves = _sizes_there(wanted, listing.walk(self.new))
        return MovedRows(wanted, rows, lacking, halves, _sizes_there(wanted, self._walk_old()))

    def remove(self) -> None:
        """Of what was staged, once it is in place."""
        shutil.rmtree(self.new, ignore_errors=True)
        if os.path.exists(self._listing):
            os.unlink(self._listing)

    def lacking(self, wanted: Listing) -> bytearray:
        """A bitmap of the files that lie here with another size or time, or not at all."""
        there = self._walk_old()
        missing_bits = bytearray((len(wanted) + 7) // 8)
        for i, j in listing.pairs(wanted, there):
            if (
                i is not None
                and wanted.is_content(i)
                and (j is None or not listing.is_same_file(wanted[i], there[j]))
            ):
                mark(missing_bits, i)
        return missing_bits

    def _walk_old(self) -> Listing:
        return walk(self.old) if os.path.isdir(self.old) else Listing()

    def _tidy(self, wanted: Listing, lacking: bytearray) -> int:
        """Removes staged files that are not lacking. Returns the bytes that the others take on the
        disk."""
        staged, total = walk(self.new), 0
        for i, j in listing.pairs(wanted, staged):
            if j is None or not staged.path(j):
                continue
            place = os.path.join(os.fsencode(self.new), staged.path(j))
            if staged[j].kind == FOLDER:
                if i is not None and wanted[i].kind == FOLDER:
                    continue
                shutil.rmtree(place)
            elif i is not None and staged[j].kind == FILE and is_marked(lacking, i):
                total += staged.allocated(j)
            elif os.path.lexists(place):  # not within a folder that was removed
                os.unlink(place)
        return total


class MovedRows(Sequence[Moved]):
    """Made when they are asked for: a million of them would take 300 MB. `halves`, `olds`: see
    _sizes_there."""

    def __init__(
        self,
        wanted: Listing,
        rows: "array[int]",
        lacking: bytearray,
        halves: "array[int]",
        olds: "array[int]",
    ) -> None:
        self._wanted, self._rows, self._lacking, self._halves, self._olds = (
            wanted,
            rows,
            lacking,
            halves,
            olds,
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        index = self._rows[number]
        row = self._wanted[index]
        return Moved(
            row.path,
            row.size,
            row.mtime_ns,
            sparse=self._wanted.is_sparse(index),
            lacking=is_marked(self._lacking, index),
            half=self._halves[index] >= 0,
            old=max(0, self._olds[index]),
        )


def _sizes_there(wanted: Listing, there: Listing) -> "array[int]":
    """By row: bytes of the file that lies there at its path, -1 where there is none."""
    sizes = array("q", [-1]) * len(wanted)
    for i, j in listing.pairs(wanted, there):
        if i is not None and j is not None and there.kind(j) == FILE:
            sizes[i] = there.size(j)
    return sizes


def walk(folder: str) -> Listing:
    """Raises VerbError strange; OSError."""
    with strange():
        return listing.walk(folder)


@contextlib.contextmanager
def strange() -> Iterator[None]:
    """Raises VerbError strange in place of Strange."""
    try:
        yield
    except listing.Strange as error:
        raise VerbError(
            "strange",
            "%s is neither a file, a link nor a folder" % error.filename,
            where=error.filename,
        ) from error


def unpack(packed: bytes) -> Listing:
    """Raises VerbError bad_listing."""
    try:
        return listing.unpack(packed)
    except listing.BadListing as error:
        raise VerbError("bad_listing", str(error)) from error
