"""Stores a new version of a data set while this host receives it. The listing of the new version,
and a staging folder for the files that this host lacks, are stored beside the data set.

The old version stays usable until the new one is complete. An interrupted sync is resumed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import weakref
from array import array

from tfdeploy.agent import layout, listing
from tfdeploy.agent.annotations import Any, Iterator, Sequence, Tuple
from tfdeploy.agent.bitmap import is_marked, make_bitmap, marked_numbers
from tfdeploy.agent.broadcast.piece_files import BroadcastFile
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic
from tfdeploy.agent.host.disk import require_space
from tfdeploy.agent.listing import FILE, FOLDER, Listing
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.datasets import versions as data_versions

_in_use: "weakref.WeakValueDictionary[Tuple[str, int, int, int], Listing]" = (
    weakref.WeakValueDictionary()
)


def data_folder(call: Call) -> str:
    """Return the folder of the data set that the call names, and check its owner. Raises VerbError
    (bad_name), UntrustedPath and OSError."""
    job, name = call.job, call.name("name")
    folder = layout.data_dir(call.workdir, job, name)
    if os.path.isdir(folder) and not os.path.islink(folder):
        check_owners(call.workdir, "%s/data/%s" % (job, name))
    return folder


class Staging:
    """The staging folder of the data set in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.old_folder = data_versions.newest_version_folder(folder)
        self.new_folder = data_versions.hidden_sibling_path(folder, "new")
        self._listing = data_versions.hidden_sibling_path(folder, "listing")

    def begin(self, packed_listing: bytes, reserve_bytes: int) -> bytearray:
        """Begin a sync, and return a bitmap of those rows of the listing whose files this host
        lacks. Removes staged files that this sync does not need.

        Raises VerbError (bad_listing, disk) and OSError.
        """
        wanted = unpack_listing(packed_listing)
        lacking_bitmap = self.find_lacking_rows(wanted)
        os.makedirs(self.new_folder, mode=0o700, exist_ok=True)
        staged_bytes = self._remove_unneeded(wanted, lacking_bitmap)
        needed = sum(wanted.allocated(row) for row in marked_numbers(lacking_bitmap)) - staged_bytes
        require_space(self.new_folder, "the data", needed, reserve=reserve_bytes)
        atomic.write_bytes(self._listing, packed_listing)
        return lacking_bitmap

    def read_listing(self) -> Listing:
        """Return the listing with which the sync began. A listing that this session already holds
        in memory is not read again, because the listing of a million files takes 60 MB. Raises
        VerbError not_begun."""
        try:
            with open(self._listing, "rb") as file:
                status = os.fstat(file.fileno())
                key = self._listing, status.st_ino, status.st_mtime_ns, status.st_size
                cached = _in_use.get(key)
                if cached is None:
                    cached = _in_use[key] = unpack_listing(file.read())
                return cached
        except FileNotFoundError as error:
            raise VerbError(
                "not_begun", "no data set was begun in %s" % self.folder, where=self.folder
            ) from error

    def list_broadcast_files(self, bitmap: bytes) -> Sequence[BroadcastFile]:
        """Return the files that a broadcast moves. `bitmap`: a bitmap of their rows in the listing.
        Raises VerbError not_begun, bad_listing."""
        wanted = self.read_listing()
        rows = array("Q", marked_numbers(bitmap))
        for index in rows:
            if index >= len(wanted) or not wanted.has_own_content(index):
                raise VerbError("bad_listing", "row %d of the listing is no file" % index)
        staged_sizes = _sizes_by_row(wanted, listing.walk(self.new_folder))
        old_sizes = _sizes_by_row(wanted, self._walk_old_folder())
        return LazyBroadcastFiles(
            wanted, rows, self.find_lacking_rows(wanted), staged_sizes, old_sizes
        )

    def remove(self) -> None:
        """Remove the staging folder and the listing, once the data set is installed."""
        shutil.rmtree(self.new_folder, ignore_errors=True)
        atomic.remove_file(self._listing)

    def find_lacking_rows(self, wanted: Listing) -> bytearray:
        """Return a bitmap of the rows of `wanted` whose file is missing on this host. A file with
        another size or time counts as missing."""
        current = self._walk_old_folder()
        rows = (
            i
            for i, j in listing.match_rows(wanted, current)
            if i is not None
            and wanted.has_own_content(i)
            and (j is None or not listing.is_same_file(wanted[i], current[j]))
        )
        return make_bitmap(rows, len(wanted))

    def _walk_old_folder(self) -> Listing:
        return walk_folder(self.old_folder) if os.path.isdir(self.old_folder) else Listing()

    def _remove_unneeded(self, wanted: Listing, lacking_bitmap: bytearray) -> int:
        """Remove the staged files that this sync does not need. Return how many bytes on disk the
        remaining staged files take."""
        staged, total = walk_folder(self.new_folder), 0
        for i, j in listing.match_rows(wanted, staged):
            if j is None or not staged.path(j):
                continue
            staged_path = os.path.join(os.fsencode(self.new_folder), staged.path(j))
            if staged[j].kind == FOLDER:
                if i is not None and wanted[i].kind == FOLDER:
                    continue
                shutil.rmtree(staged_path)
            elif i is not None and staged[j].kind == FILE and is_marked(lacking_bitmap, i):
                total += staged.allocated(j)
            elif os.path.lexists(staged_path):  # the file may be gone together with its folder
                os.unlink(staged_path)
        return total


class LazyBroadcastFiles(Sequence[BroadcastFile]):
    """The files that a broadcast moves, as a sequence. The objects in it are created on access,
    because a million of them would take 300 MB. `staged_sizes`, `old_sizes`: for each row of the
    listing, the size of its staged file and of its old file, or -1 if there is no such file."""

    def __init__(
        self,
        wanted: Listing,
        rows: "array[int]",
        lacking_bitmap: bytearray,
        staged_sizes: "array[int]",
        old_sizes: "array[int]",
    ) -> None:
        self._wanted, self._rows, self._lacking = wanted, rows, lacking_bitmap
        self._staged_sizes, self._old_sizes = staged_sizes, old_sizes

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        index = self._rows[number]
        row = self._wanted[index]
        return BroadcastFile(
            row.path,
            row.size,
            row.mtime_ns,
            sparse=self._wanted.is_sparse(index),
            lacking=is_marked(self._lacking, index),
            partial=self._staged_sizes[index] >= 0,
            old=max(0, self._old_sizes[index]),
        )


def _sizes_by_row(wanted: Listing, current: Listing) -> "array[int]":
    """For each row of `wanted`, return the size of the file at the same path in `current`, or -1 if
    there is no such file."""
    sizes = array("q", [-1]) * len(wanted)
    for i, j in listing.match_rows(wanted, current):
        if i is not None and j is not None and current.kind(j) == FILE:
            sizes[i] = current.size(j)
    return sizes


def walk_folder(folder: str) -> Listing:
    """Return the listing of a folder. Raises OSError, and VerbError strange if an entry is neither
    a file, a link nor a folder."""
    with translate_special_file():
        return listing.walk(folder)


@contextlib.contextmanager
def translate_special_file() -> Iterator[None]:
    """Turn the exception SpecialFile into VerbError strange."""
    try:
        yield
    except listing.SpecialFile as error:
        raise VerbError(
            "strange",
            "%s is neither a file, a link nor a folder" % error.filename,
            where=error.filename,
        ) from error


def unpack_listing(packed: bytes) -> Listing:
    """Unpack the listing. Raises VerbError bad_listing."""
    try:
        return listing.unpack(packed)
    except listing.BadListing as error:
        raise VerbError("bad_listing", str(error)) from error
