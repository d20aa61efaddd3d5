"""Handles data sets with the setting `split`, whose files are divided into parts for the tasks.
Finds which files a host has and to which part each file belongs, and makes a folder for each part
that a task on this host reads.

If the data set's folder on this host has only the files of one part, the part's folder is a link to
the data set's folder. Otherwise each part gets a folder with hard links to its files.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from array import array

from tfdeploy.agent import bitmap, layout, listing
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import FOLDER, LINK, Listing
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.datasets import record as data_record
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.staging import data_folder, unpack_listing, walk_folder

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, DataParts

NO_PART = 0xFFFF


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
    return {"held": rows_held, "folder_id": data_record.folder_id(folder)}


def encode_part_numbers(count: int, blob: bytes) -> Optional[DataParts]:
    """Convert the parts from the arguments of `data.commit` to the form in which they are stored.
    Return None if the data set has no parts."""
    return {"count": count, "of": base64.b64encode(blob).decode("ascii")} if count else None


def parts_digest(parts: Optional[DataParts]) -> str:
    """Return a hash over the part numbers of all files, or "" if the data set has no parts. The
    control machine computes the same hash."""
    if parts is None:
        return ""
    return hashlib.sha256(b"%d " % parts["count"] + _unpack_or_empty(parts["of"])).hexdigest()


def make_part_folders(paths: RunPaths, parts_by_data_set: Mapping[str, List[int]]) -> None:
    """Make a folder for each part of a data set that a task of the run reads on this host.
    `parts_by_data_set`: {data set: [how many parts it has, number of each part to make, ...]}.
    Raises VerbError no_data, OSError."""
    for name, numbers in parts_by_data_set.items():
        parts_folder = layout.parts_dir(paths.workdir, paths.job, paths.run, paths.host, name)
        os.makedirs(os.path.join(parts_folder, layout.NO_PART), mode=0o700)
        count, needed_parts = numbers[0], numbers[1:]
        if needed_parts:
            _make_part_folders(paths, name, parts_folder, count, needed_parts)


def _make_part_folders(
    paths: RunPaths, name: str, parts_folder: str, count: int, needed_parts: List[int]
) -> None:
    folder = layout.data_dir(paths.workdir, paths.job, name)
    rows, part_numbers, recorded_count = _list_with_part_numbers(folder)
    if recorded_count != count or not set(needed_parts) <= set(part_numbers):
        what = "this host does not have data set %s divided into %d parts" % (name, count)
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
    """In `target`, make all folders and symbolic links of the data set. Of the files, make only
    those of this part, as hard links."""
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
    each row of the listing to which part the file belongs. It is empty if the data set has no
    parts, or if the recorded part numbers belong to another state of the data set."""
    rows = walk_folder(folder) if os.path.isdir(folder) else Listing()
    record, numbers = data_record.read_record(folder), array("H")
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
