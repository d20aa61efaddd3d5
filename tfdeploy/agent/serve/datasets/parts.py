"""Data sets with `split`: which files a host has, which part each of them is in, and the folders of
parts that a run's tasks get.

A host that has one part has its files alone in the data set's folder. One that has several, or
other files besides, gets a folder of hard links for each part.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from array import array

from tfdeploy.agent import bitmap, layout, listing
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Mapping, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import FOLDER, LINK, Listing
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.datasets import record as data_record
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.staging import unpack, walk

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, DataParts

NO_PART = 0xFFFF


def held(call: Call) -> Answer:
    """Say which files of a listing lie here already, by size and time. Changes nothing.

    Args: job, name; blob: a packed Listing.

    Raises VerbError bad_listing.
    """
    folder = data_versions.newest(
        layout.data_dir(call.context.workdir, call.name("job"), call.name("name"))
    )
    wanted = unpack(call.blob)
    there = walk(folder) if os.path.isdir(folder) else Listing()
    record = data_record.read(folder)
    stored = record["parts"] if record is not None else None
    of = _of(stored, there) if stored is not None else None
    rows_by_part: Dict[int, List[int]] = {}
    for i, j in listing.pairs(wanted, there):
        if (
            i is not None
            and j is not None
            and wanted.is_content(i)
            and listing.is_same_file(wanted[i], there[j])
        ):
            rows_by_part.setdefault(of[j] if of is not None else NO_PART, []).append(i)
    held = [
        [part, bitmap.pack(bitmap.bitmap_of(rows, len(wanted)))]
        for part, rows in rows_by_part.items()
    ]
    return {"held": held, "folder_id": data_record.identity(folder)}


def from_blob(count: int, blob: bytes) -> Optional[DataParts]:
    """As `data.commit` gets them; None: the data set has no parts."""
    return {"count": count, "of": base64.b64encode(blob).decode("ascii")} if count else None


def name_of(parts: Optional[DataParts]) -> str:
    """Names which files are in which part; "" for no parts. The control side makes the same
    name."""
    if parts is None:
        return ""
    return hashlib.sha256(b"%d " % parts["count"] + _unpacked(parts["of"])).hexdigest()


def make_folders(paths: RunPaths, wanted: Mapping[str, List[int]]) -> None:
    """`wanted`: name -> how many parts there are, then those of this host's tasks. Raises VerbError
    no_data, OSError."""
    for name, numbers in wanted.items():
        top = layout.parts_dir(paths.workdir, paths.job, paths.run, paths.host, name)
        os.makedirs(os.path.join(top, layout.NO_PART), mode=0o700)
        count, mine = numbers[0], numbers[1:]
        if mine:
            _make(paths, name, top, count, mine)


def _make(paths: RunPaths, name: str, top: str, count: int, mine: List[int]) -> None:
    folder = layout.data_dir(paths.workdir, paths.job, name)
    record = data_record.read(folder)
    stored = record["parts"] if record is not None else None
    rows = walk(folder) if os.path.isdir(folder) else Listing()
    of = _of(stored, rows) if stored is not None and stored["count"] == count else None
    if of is None or not set(mine) <= set(of):
        what = "data set %s is not here in %d parts" % (name, count)
        raise VerbError("no_data", what, where=folder, advice="launch_with_sync")
    alone = set(of) <= {mine[0], NO_PART}
    for part in mine:
        place = os.path.join(top, "%d" % part)
        if alone:
            os.symlink(folder, place)
        else:
            _link_part(os.fsencode(folder), rows, of, part, os.fsencode(place))


def _link_part(folder: bytes, rows: Listing, of: "array[int]", part: int, place: bytes) -> None:
    """All folders and links, and hard links to the part's files."""
    for index, row in enumerate(rows):
        at = os.path.join(place, row.path) if row.path else place
        if row.kind == FOLDER:
            os.mkdir(at, 0o700)
        elif row.kind == LINK:
            os.symlink(row.target, at)
        elif of[index] == part:
            os.link(os.path.join(folder, row.path), at, follow_symlinks=False)


def _of(stored: DataParts, rows: Listing) -> "Optional[array[int]]":
    """The part of each row; None: what was stored is of another state."""
    content = _unpacked(stored["of"])
    if len(content) != 2 * len(rows):
        return None
    parts = array("H")
    parts.frombytes(content)
    if sys.byteorder == "big":
        parts.byteswap()
    return parts


def _unpacked(text: str) -> bytes:
    try:
        return bitmap.unpack(text)
    except ValueError:
        return b""
