"""Finds which files of a data set this host has. A Listing (agent/listing.py) says which files the
data set should have. This host may have them in the data set's folder, or staged for a new version.

While this host receives a new version, the listing of that version and a staging folder for the
files that this host lacks are beside the data set. The old version stays usable until the new one
is complete. An interrupted sync is resumed.

The files of a data set with the setting `split` are divided into parts for the tasks. Each part
that a task on this host reads gets a folder. If the data set's folder on this host has only the
files of one part, the part's folder is a link to the data set's folder. Otherwise it has hard links
to the part's files.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import sys
import weakref
from array import array

from tfdeploy.agent import bitmap, layout, listing
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)
from tfdeploy.agent.bitmap import is_marked, make_bitmap, marked_numbers
from tfdeploy.agent.broadcast.piece_files import BroadcastFile
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic
from tfdeploy.agent.host.disk import require_space
from tfdeploy.agent.listing import FILE, FOLDER, LINK, Listing
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.datasets import versions as data_versions

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, DataParts

_in_use: "weakref.WeakValueDictionary[Tuple[str, int, int, int], Listing]" = (
    weakref.WeakValueDictionary()
)
NO_PART = 0xFFFF


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

    def begin(self, packed_listing: bytes, reserve_bytes: int) -> Tuple[bytearray, bytearray]:
        """Begin a sync. Return two bitmaps of rows of the listing: the files that this host lacks,
        and the lacking files that are already complete in the staging folder. Removes staged files
        that this sync does not need.

        Raises VerbError (bad_listing, disk) and OSError.
        """
        wanted = unpack_listing(packed_listing)
        lacking_bitmap = self.find_lacking_rows(wanted)
        os.makedirs(self.new_folder, mode=0o700, exist_ok=True)
        staged_bytes, complete = self._remove_unneeded(wanted, lacking_bitmap)
        needed = sum(wanted.allocated(row) for row in marked_numbers(lacking_bitmap)) - staged_bytes
        require_space(self.new_folder, "the data", needed, reserve=reserve_bytes)
        atomic.write_bytes(self._listing, packed_listing)
        return lacking_bitmap, make_bitmap(complete, len(wanted))

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
                "not_begun",
                "no sync of the data set in %s was begun" % self.folder,
                where=self.folder,
            ) from error

    def list_broadcast_files(self, bitmap: bytes) -> Sequence[BroadcastFile]:
        """Return the files that a broadcast moves. `bitmap`: a bitmap of their rows in the listing.
        Raises VerbError not_begun, bad_listing."""
        wanted = self.read_listing()
        rows = array("Q", marked_numbers(bitmap))
        for index in rows:
            if index >= len(wanted) or not wanted.has_own_content(index):
                raise VerbError("bad_listing", "row %d of the listing is not a file" % index)
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

    def _remove_unneeded(
        self, wanted: Listing, lacking_bitmap: bytearray
    ) -> "Tuple[int, array[int]]":
        """Remove the staged files that this sync does not need. Return how many bytes on disk the
        remaining staged files take, and the rows of the complete files among them."""
        staged, total, complete = walk_folder(self.new_folder), 0, array("Q")
        for i, j in listing.match_rows(wanted, staged):
            if j is None or not staged.path(j):
                continue
            staged_path = os.path.join(os.fsencode(self.new_folder), staged.path(j))
            if staged[j].kind == FOLDER:
                if i is not None and wanted[i].kind == FOLDER:
                    continue
                shutil.rmtree(staged_path)
            elif (
                i is not None
                and staged[j].kind == FILE
                and is_marked(lacking_bitmap, i)
                # A staged file with two names (hard links) is removed. The second name may be in a
                # complete version of the data set, if a commit was killed; writing to the file
                # would change that version.
                and os.lstat(staged_path).st_nlink == 1
            ):
                total += staged.allocated(j)
                if (staged.sizes[j], staged[j].mtime_ns) == (wanted.sizes[i], wanted[i].mtime_ns):
                    complete.append(i)
            elif os.path.lexists(staged_path):  # the file may be gone together with its folder
                os.unlink(staged_path)
        return total, complete


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
            sizes[i] = current.sizes[j]
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


# --- the parts of a data set


def report_present_files(call: Call) -> Answer:
    """Report which files of a listing this host already has with the same size and time. Changes
    nothing.

    Args: job, name; blob: a packed Listing.

    Raises VerbError bad_listing.
    """
    folder = data_versions.newest_version_folder(data_folder(call))
    wanted = unpack_listing(call.blob)
    current, part_numbers, _ = _list_with_part_numbers(folder)
    rows_by_part: Dict[int, List[int]] = {}
    for i, j in listing.match_rows(wanted, current):
        if (
            i is not None
            and j is not None
            and wanted.has_own_content(i)
            and listing.is_same_file(wanted[i], current[j])
        ):
            rows_by_part.setdefault(part_numbers[j] if part_numbers else NO_PART, []).append(i)
    rows_held = [
        [part, bitmap.pack(bitmap.make_bitmap(rows, len(wanted)))]
        for part, rows in rows_by_part.items()
    ]
    return {"held": rows_held, "folder_id": data_versions.folder_id(folder)}


def encode_part_numbers(part_count: int, blob: bytes) -> Optional[DataParts]:
    """Convert the part numbers that a call of `data.commit` sends to the form in which they are
    stored. Return None if the data set is not divided into parts."""
    return (
        {"count": part_count, "of": base64.b64encode(blob).decode("ascii")} if part_count else None
    )


def parts_digest(parts: Optional[DataParts]) -> str:
    """Return a hash over the part numbers of all files, or "" if the data set has no parts. The
    control machine computes the same hash."""
    if parts is None:
        return ""
    return hashlib.sha256(b"%d " % parts["count"] + _unpack_or_empty(parts["of"])).hexdigest()


def make_part_folders(paths: RunPaths, parts_by_data_set: Mapping[str, List[int]]) -> None:
    """Make the folders of the parts that tasks of this run read on this host: one folder for each
    part. `parts_by_data_set`: {data set: [how many parts it has, number of each part to make,
    ...]}. Raises VerbError no_data, OSError."""
    for name, numbers in parts_by_data_set.items():
        parts_folder = layout.parts_dir(paths.workdir, paths.job, paths.run, paths.host, name)
        os.makedirs(os.path.join(parts_folder, layout.NO_PART), mode=0o700)
        count, needed_parts = numbers[0], numbers[1:]
        if needed_parts:
            _make_part_folders(paths, name, parts_folder, count, needed_parts)


def _make_part_folders(
    paths: RunPaths, name: str, parts_folder: str, part_count: int, needed_parts: List[int]
) -> None:
    folder = layout.data_dir(paths.workdir, paths.job, name)
    rows, part_numbers, recorded_count = _list_with_part_numbers(folder)
    if recorded_count != part_count or not set(needed_parts) <= set(part_numbers):
        what = "this host does not have data set %s divided into %d parts" % (name, part_count)
        raise VerbError("no_data", what, where=folder, advice="launch_with_sync")
    alone = set(part_numbers) <= {needed_parts[0], NO_PART}
    for part in needed_parts:
        target = os.path.join(parts_folder, "%d" % part)
        if alone:
            os.symlink(folder, target)
        else:
            _link_part(os.fsencode(folder), rows, part_numbers, part, os.fsencode(target))


def _link_part(
    folder: bytes, rows: Listing, part_numbers: "array[int]", part: int, target: bytes
) -> None:
    """Make the folder `target` for a part of a data set. The new folder gets all folders and
    symbolic links of the data set, but only the files of this part, as hard links."""
    for index, row in enumerate(rows):
        path = os.path.join(target, row.path) if row.path else target
        if row.kind == FOLDER:
            os.mkdir(path, 0o700)
        elif row.kind == LINK:
            os.symlink(row.target, path)
        elif part_numbers[index] == part:
            os.link(os.path.join(folder, row.path), path, follow_symlinks=False)


def _list_with_part_numbers(folder: str) -> "Tuple[Listing, array[int], int]":
    """Return (listing of the folder, array of part numbers, count of parts). The array says for
    each row of the listing to which part the file belongs. The array is empty if the data set has
    no parts, or if the part numbers were recorded for another state of the data set."""
    rows = walk_folder(folder) if os.path.isdir(folder) else Listing()
    record, numbers = data_versions.read_record(folder), array("H")
    parts = record["parts"] if record is not None else None
    if parts is None:
        return rows, numbers, 0
    content = _unpack_or_empty(parts["of"])
    if len(content) == 2 * len(rows):
        numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return rows, numbers, parts["count"]


def _unpack_or_empty(text: str) -> bytes:
    try:
        return bitmap.unpack(text)
    except ValueError:
        return b""
