"""List the contents of a folder: one row for each file, link and folder, without the content of
files. The control machine and the hosts walk through a folder in the same order.

A row takes about 30 bytes of memory besides its path, because rows are stored in arrays; so a
million files fit in memory. Paths are relative and are bytes, with "/" as separator. Within a
folder, names are sorted by their bytes.
"""

from __future__ import annotations

import os
import stat
import struct
from array import array

from tfdeploy.agent.annotations import Callable, Dict, Iterable, Iterator, Optional, Tuple
from tfdeploy.agent.bitmap import is_marked
from tfdeploy.agent.layout import PARTIAL
from tfdeploy.agent.record import NamedTuple

FILE, LINK, FOLDER = "f", "l", "d"
MOST_BYTES = 1 << 30  # limits the size of an unpacked listing
_HEAD = struct.Struct("!8sQQQQ")
_MAGIC = b"listing2"
_SECOND = 1_000_000_000
NOT_LINKED = -1  # the value of `same_as` in a row that is not a hard link to an earlier row
_ROW_BYTES = 27  # the size of an uncompressed row without its path, in bytes; see `pack`


class BadListing(ValueError):
    """The received bytes are not a valid listing."""


class SpecialFile(OSError):
    """The path `filename` is neither a file nor a link nor a folder."""


class Row(NamedTuple):
    path: bytes  # b"" is the folder itself
    kind: str
    size: int  # size of a file in bytes; 0 for links and folders
    mtime_ns: int
    mode: int  # permission bits
    target: bytes = b""  # the path to which a link points
    # index of an earlier row that is the same file (a hard link), or NOT_LINKED
    same_as: int = NOT_LINKED
    # how many bytes the content occupies on the disk; not more than `size`
    allocated: int = 0


class Listing:
    """A list of rows. `add` appends a row. The index of a row in the list never changes.

    `sizes`: the sizes of all rows. A hard link has the size of its file; links and folders have 0.
    """

    def __init__(self) -> None:
        self._paths, self._ends = bytearray(), array("Q")
        self._kinds, self.sizes, self._mtimes, self._modes = (
            bytearray(),
            array("Q"),
            array("q"),
            array("H"),
        )
        self._targets: Dict[int, bytes] = {}
        self._same: Dict[int, int] = {}
        # row number of a sparse file -> bytes that the file occupies on the disk
        self._allocated: Dict[int, int] = {}
        self.total_bytes = 0
        self.files = 0

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Row:
        return Row(
            self.path(index),
            self.kind(index),
            self.sizes[index],
            self._mtimes[index],
            self._modes[index],
            self._targets.get(index, b""),
            self._same.get(index, NOT_LINKED),
            self.allocated(index),
        )

    def __iter__(self) -> Iterator[Row]:
        return map(self.__getitem__, range(len(self)))

    def path(self, index: int) -> bytes:
        return bytes(self._paths[self._ends[index - 1] if index else 0 : self._ends[index]])

    def kind(self, index: int) -> str:
        return chr(self._kinds[index])

    def has_own_content(self, index: int) -> bool:
        """Return whether the row is a file with content of its own. A hard link to a file in an
        earlier row has no content of its own."""
        return self._kinds[index] == ord(FILE) and index not in self._same

    def is_sparse(self, index: int) -> bool:
        return index in self._allocated

    def allocated(self, index: int) -> int:
        """Return how many bytes the content of the row occupies on a disk."""
        return self._allocated.get(index, self.sizes[index])

    def add(self, row: Row) -> None:
        index = len(self)
        self._paths += row.path
        self._ends.append(len(self._paths))
        self._kinds.append(ord(row.kind))
        self.sizes.append(row.size)
        self._mtimes.append(row.mtime_ns)
        self._modes.append(row.mode)
        if row.target:
            self._targets[index] = row.target
        if row.same_as != NOT_LINKED:
            self._same[index] = row.same_as
        if row.allocated < row.size:
            self._allocated[index] = row.allocated
        if row.kind == FILE:
            self.files += 1
            self.total_bytes += row.size if row.same_as == NOT_LINKED else 0

    def select_files(self, file_bitmap: "bytes | bytearray") -> "Tuple[Listing, array[int]]":
        """Return (new listing, indices). The new listing contains the files that are marked in
        `file_bitmap`, the hard links to these files, and all links and folders. `indices`: for each
        row of the new listing, its index in this listing.

        Folders without a marked file are kept too: many programs use the names of the folders as
        the names of the classes, and must see all classes in each part of a data set.
        """
        chosen, rows, new_indices = Listing(), array("Q"), {}
        linked = set(self._same.values())
        for index, row in enumerate(self):
            first = index if row.same_as == NOT_LINKED else row.same_as
            if row.kind == FILE and not is_marked(file_bitmap, first):
                continue
            if row.kind == FILE and index in linked:
                new_indices[index] = len(chosen)
            chosen.add(row if first == index else row._replace(same_as=new_indices[first]))
            rows.append(index)
        return chosen, rows

    def drop_special_modes(self) -> None:
        """Remove the setuid, setgid and sticky bits from the modes of all rows."""
        self._modes = array("H", (mode & 0o777 for mode in self._modes))

    def digest(self) -> str:
        """Return a hash of the content: paths, sizes, times in whole seconds and link targets.
        Folders, modes and hard links are left out, because some file systems do not keep them."""
        return digest(self)

    def attributes_digest(self) -> str:
        """Return a hash of modes, times in whole seconds and hard links of all rows, folders
        included."""
        return _hash_rows(
            self, lambda row: b"%o %d %d" % (row.mode, row.mtime_ns // _SECOND, row.same_as)
        )

    def pack(self) -> bytes:
        """Return the listing in the form that `unpack` reads: a head that contains the lengths of
        the columns, then the columns, compressed by zlib."""
        import zlib

        links, sparse = (
            array("q", [number for pair in pairs.items() for number in pair])
            for pairs in (self._same, self._allocated)
        )
        targets = b"\0".join(self._targets.values())
        packer = zlib.compressobj(1)
        numbers = (self._ends, self.sizes, self._mtimes, self._modes, links, sparse)
        columns = [packer.compress(_convert_byte_order(column)) for column in numbers]
        columns += [packer.compress(column) for column in (self._kinds, self._paths, targets)]
        head = _HEAD.pack(
            _MAGIC, len(self), len(self._same), len(self._allocated), len(self._paths)
        )
        return head + b"".join(columns) + packer.flush()


def digest(rows: Iterable[Row]) -> str:
    """Return the hash that a Listing with these rows returns from Listing.digest."""
    return _hash_rows((row for row in rows if row.kind != FOLDER), _content_fields)


def _hash_rows(rows: Iterable[Row], row_fields: Callable[[Row], bytes]) -> str:
    import hashlib

    total = hashlib.sha256()
    for row in rows:
        total.update(b"%s\0%s %s %s\0" % (row.path, row.kind.encode(), row_fields(row), row.target))
    return total.hexdigest()


def _content_fields(row: Row) -> bytes:
    return b"%d %d" % ((row.size, row.mtime_ns // _SECOND) if row.kind == FILE else (0, 0))


def _convert_byte_order(column: "array[int]") -> "array[int]":
    """Convert a column between the byte order of this machine and little-endian, which is the order
    in packed listings."""
    import sys

    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column


def unpack(packed: bytes) -> Listing:
    """Return the listing that `Listing.pack` has encoded. Raises BadListing if the bytes are
    invalid."""
    import zlib

    try:
        magic, count, linked, sparse, paths_bytes = _HEAD.unpack_from(packed)
        if (
            magic != _MAGIC
            or _ROW_BYTES * count + 16 * (linked + sparse) + paths_bytes > MOST_BYTES
        ):
            raise BadListing("not a listing, or one of more than %d bytes" % MOST_BYTES)
        body = _ColumnReader(packed)
        listing = Listing()
        listing._ends, listing.sizes = body.read_column("Q", count), body.read_column("Q", count)
        listing._mtimes, listing._modes = body.read_column("q", count), body.read_column("H", count)
        listing._same, listing._allocated = body.read_pairs(linked), body.read_pairs(sparse)
        listing._kinds = bytearray(body.read(count))
        listing._paths = bytearray(body.read(paths_bytes))
        listing._targets = _parse_targets(listing._kinds, body.read_rest())
    except (struct.error, zlib.error, ValueError, IndexError, MemoryError) as error:
        raise BadListing("not a listing: %s" % error) from error
    _check_rows(listing)
    return listing


class _ColumnReader:
    """The compressed columns of a packed listing. The columns are unpacked one after another,
    because all of them together would need the memory of a second listing."""

    def __init__(self, packed: bytes) -> None:
        import zlib

        self._reader, self._packed = zlib.decompressobj(), memoryview(packed)[_HEAD.size :]

    def read(self, size: int) -> bytes:
        if not size:
            return b""
        content = self._reader.decompress(self._packed, size)
        self._packed = memoryview(self._reader.unconsumed_tail)
        if len(content) != size:
            raise BadListing("it is too short")
        return content

    def read_column(self, code: str, length: int) -> "array[int]":
        values = array(code)
        values.frombytes(self.read(length * values.itemsize))
        return _convert_byte_order(values)

    def read_pairs(self, count: int) -> Dict[int, int]:
        """Read `count` pairs of numbers, and return a dict from the first number of each pair to
        the second."""
        column = self.read_column("q", 2 * count)
        return dict(zip(column[::2], column[1::2]))  # noqa: B905 - 3.8 knows no strict

    def read_rest(self) -> bytes:
        content = self._reader.decompress(self._packed, MOST_BYTES)
        if not self._reader.eof:
            raise BadListing("it is cut off or too long")
        return content


def _parse_targets(kinds: bytearray, body: bytes) -> Dict[int, bytes]:
    """Return index of the row -> target, for all rows that are links."""
    links = [index for index, kind in enumerate(kinds) if kind == ord(LINK)]
    targets = body.split(b"\0") if body else []
    if len(targets) != len(links):
        raise BadListing("it has more or fewer targets than links")
    return dict(zip(links, targets))  # noqa: B905 - 3.8 knows no strict


def _check_rows(listing: Listing) -> None:
    """Check all rows, and compute the totals of the listing. Raises BadListing, for example if a
    path leads out of the folder. The paths must be sorted, and no path may occur twice."""
    # The path of the previous row, with "/" at its end if that row is a folder.
    before = b""
    for index, row in enumerate(listing):
        if row.kind not in (FILE, LINK, FOLDER) or row.size > 1 << 62:
            raise BadListing("row %d has an invalid kind or size" % index)
        if (
            row.kind == FILE
            and row.same_as != NOT_LINKED
            and not (0 <= row.same_as < index and listing.has_own_content(row.same_as))
        ):
            raise BadListing("row %d is linked to no earlier file" % index)
        if not row.path:
            if index or row.kind != FOLDER:
                raise BadListing("row %d has no path" % index)
            continue
        if any(name in (b"", b".", b"..") for name in row.path.split(b"/")) or b"\0" in row.path:
            raise BadListing("row %d leads out of the folder" % index)
        if before and sort_key(row.path) <= sort_key(before):
            raise BadListing("row %d must be sorted after the previous row" % index)
        # The rows are sorted, so the previous row must be the folder that contains this row, or
        # must itself be in that folder.
        parent, slash, _ = row.path.rpartition(b"/")
        if not before.startswith(parent + slash):
            raise BadListing("row %d is in no folder of the listing" % index)
        before = row.path + (b"/" if row.kind == FOLDER else b"")
        listing.files += row.kind == FILE
        listing.total_bytes += row.size if listing.has_own_content(index) else 0


def sort_key(path: bytes) -> bytes:
    """Return the sort key of a path. `walk` returns paths in the order of these keys."""
    return path.replace(b"/", b"\0")


Inode = Tuple[int, int]
Visit = Callable[[bytes, os.stat_result], None]


def walk(folder: str, visit: Visit = lambda path, file_stat: None) -> Listing:
    """List a folder and everything in it. The folder itself may be given as a link. `visit` is
    called for each file and link. Raises SpecialFile, OSError."""
    listing, top = Listing(), os.fsencode(folder)
    linked: Dict[Inode, int] = {}
    listing.add(_make_row(top, b"", os.stat(top), listing, linked))
    for path, about in walk_entries(top):
        row = _make_row(top, path, about, listing, linked)
        listing.add(row)
        if row.kind != FOLDER:
            visit(path, about)
    return listing


def rows_in(folder: str) -> Iterator[Row]:
    """Yield the rows that `walk` would list, without keeping them in memory. A hard link is a row
    like any other file. Raises SpecialFile, OSError."""
    top, none = os.fsencode(folder), Listing()
    return (_make_row(top, path, about, none, {}) for path, about in walk_entries(top))


def list_file(path: str, visit: Visit = lambda path, file_stat: None) -> Listing:
    """Return a listing that contains only the file `path`. In the listing, the path of the file is
    its name without folders. `visit` is called for the file. Raises SpecialFile, OSError."""
    listing, (top, name) = Listing(), os.path.split(os.fsencode(path))
    file_stat = os.lstat(path)
    row = _make_row(top, name, file_stat, listing, {})
    visit(row.path, file_stat)
    listing.add(row)
    return listing


def walk_entries(top: bytes) -> Iterator[Tuple[bytes, os.stat_result]]:
    """Yield (relative path, lstat result) for all entries in a folder and below it, in the order of
    `walk`. Raises OSError. The function uses os.listdir, which returns only names: the entries that
    os.scandir returns would need a gigabyte for a million files."""
    partial = os.fsencode(PARTIAL)
    levels = [(b"", iter(sorted(os.listdir(top))))]
    while levels:
        prefix, names = levels[-1]
        for name in names:
            path = prefix + name
            about = os.lstat(os.path.join(top, path))
            is_folder = stat.S_ISDIR(about.st_mode)
            if name == partial and is_folder:
                continue  # the folder contains partial files of rsync
            yield path, about
            if is_folder:
                levels.append((path + b"/", iter(sorted(os.listdir(os.path.join(top, path))))))
                break
        else:
            levels.pop()


def _make_row(
    top: bytes,
    path: bytes,
    file_stat: os.stat_result,
    listing: Listing,
    linked: Dict[Inode, int],
) -> Row:
    mode, mtime_ns = stat.S_IMODE(file_stat.st_mode), file_stat.st_mtime_ns
    if stat.S_ISDIR(file_stat.st_mode):
        return Row(path, FOLDER, 0, mtime_ns, mode)
    if stat.S_ISLNK(file_stat.st_mode):
        return Row(path, LINK, 0, mtime_ns, 0o777, os.readlink(os.path.join(top, path)))
    if not stat.S_ISREG(file_stat.st_mode):
        full_path = os.fsdecode(os.path.join(top, path))
        raise SpecialFile(0, "neither a file, a link nor a folder", full_path)
    same_as = NOT_LINKED
    if file_stat.st_nlink > 1:
        same_as = linked.setdefault((file_stat.st_dev, file_stat.st_ino), len(listing))
        same_as = NOT_LINKED if same_as == len(listing) else same_as
    allocated = min(file_stat.st_blocks * 512, file_stat.st_size)
    return Row(path, FILE, file_stat.st_size, mtime_ns, mode, b"", same_as, allocated)


def match_rows(wanted: Listing, present: Listing) -> Iterator[Tuple[Optional[int], Optional[int]]]:
    """Yield pairs of row indices (index in `wanted`, index in `present`) that belong to the same
    path, in the order of `walk`. An index is None if that listing does not contain the path."""
    i = j = 0
    while i < len(wanted) or j < len(present):
        ours = sort_key(wanted.path(i)) if i < len(wanted) else None
        theirs = sort_key(present.path(j)) if j < len(present) else None
        if theirs is None or (ours is not None and ours < theirs):
            yield i, None
            i += 1
        elif ours is None or theirs < ours:
            yield None, j
            j += 1
        else:
            yield i, j
            i, j = i + 1, j + 1


def is_same_file(row: Row, other: Row) -> bool:
    """Return whether two rows are the same file by the criteria of rsync: both are files, and they
    have the same size and the same time in whole seconds."""
    return (
        row.kind == other.kind == FILE
        and row.size == other.size
        and row.mtime_ns // _SECOND == other.mtime_ns // _SECOND
    )
