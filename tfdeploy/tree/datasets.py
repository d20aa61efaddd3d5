"""List the files of a data set on the control machine.

Contents are not read: a file counts as changed if its size or time has changed. The listing is made
by the agent's code (agent/listing.py), so that hosts compute the same digest for the same files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tfdeploy.agent import listing, wire
from tfdeploy.agent.listing import FOLDER, Listing, SpecialFile
from tfdeploy.agent.stamp import Stamp, compute_stamp
from tfdeploy.errors import ConfigError, Refused
from tfdeploy.text.nexts import most_similar
from tfdeploy.tree.links import link_leads_outside
from tfdeploy.tree.withheld_files import NONE, WithheldFiles


@dataclass(frozen=True)
class DataListing:
    """The listing of a data set, which is a folder or a single file.

    `source`: absolute path. A single file is listed under its own name.
    """

    source: str
    is_folder: bool
    rows: Listing = field(repr=False, compare=False)
    digest: str
    attributes_digest: str
    # one text for each link that leads out of the data set or nowhere
    warnings: tuple[str, ...]
    stamp: str  # the text of an agent.stamp.Stamp; it changes when the data set changes
    # The files that must not be sent. `list_again` needs them.
    withheld_files: WithheldFiles = field(default=NONE, repr=False, compare=False)

    @property
    def root(self) -> str:
        """Return the folder to which the paths of `rows` are relative."""
        return self.source if self.is_folder else os.path.dirname(self.source)

    @property
    def total_bytes(self) -> int:
        return self.rows.total_bytes

    @cached_property
    def path_hashes(self) -> bytes:
        """Return the concatenated wire.hash_path of every path that is not a folder."""
        # A loop is used because bytes.join would first collect all hashes, of which there may be a
        # million.
        joined = bytearray()
        for index in range(len(self.rows)):
            if self.rows.kind(index) != FOLDER:
                joined += wire.hash_path(os.fsdecode(self.rows.path(index)))
        return bytes(joined)

    @property
    def path_hashes_max_bytes(self) -> int:
        """Return an upper bound for the number of bytes of `path_hashes`."""
        return len(self.rows) * wire.NAME_KEY_BYTES


def list_data_set(
    path: Path, withheld_files: WithheldFiles = NONE, position: str | None = None
) -> DataListing:
    """Return the listing of a data set.

    `withheld_files`: files that must not be sent. `position`: where the job file names the path.
    Raises ConfigError if the data set is missing or contains a withheld file. Raises Refused if the
    data set is empty, unreadable or a link to a file, or contains something other than files,
    folders and links.
    """
    source = os.path.abspath(path)
    stamp = Stamp()
    try:
        is_folder = stat.S_ISDIR(os.stat(source).st_mode)
        if not is_folder and os.path.islink(source):
            raise Refused(
                "the data set is a link to a file",
                where=source,
                next=f"name the file itself: {os.path.realpath(source)}",
            )
        visit = _make_stamping_visitor(
            source if is_folder else os.path.dirname(source), stamp, withheld_files
        )
        rows = listing.walk(source, visit) if is_folder else listing.list_file(source, visit)
    except FileNotFoundError as error:
        near = _similar_path(source)
        raise ConfigError(
            f"the data set {source} does not exist",
            where=position or source,
            next=f"did you mean {near}?" if near else "correct `data:` in the job file",
        ) from error
    except SpecialFile as error:
        raise Refused(
            str(error.strerror),
            where=str(error.filename),
            next="move this file out of the data set",
        ) from error
    except OSError as error:
        raise Refused(
            f"the data set cannot be read: {error.strerror}",
            where=source,
            next="make the data set readable for yourself",
        ) from error
    return replace(
        make_data_listing(source, is_folder, rows, str(stamp)), withheld_files=withheld_files
    )


def _similar_path(missing: str) -> str:
    """Return the path up to its first missing name, which is replaced by a similar existing name.

    Return "" if there is no similar name.
    """
    folder, name = os.path.split(missing)
    if not os.path.isdir(folder):
        return _similar_path(folder) if folder != missing else ""
    near = most_similar(name, os.listdir(folder))
    return near and os.path.join(os.path.relpath(folder), near)


def list_again(data: DataListing) -> DataListing:
    """List the data set again. The same files are withheld. Raises as `list_data_set` does."""
    return list_data_set(Path(data.source), data.withheld_files)


def _make_stamping_visitor(root: str, stamp: Stamp, withheld_files: WithheldFiles) -> listing.Visit:
    """Return the function that `agent.listing` calls for each path of the data set.

    The returned function adds the path to `stamp`. It raises ConfigError for a withheld file.
    """
    if not withheld_files.by_path:
        return stamp.add_file
    find = withheld_files.make_finder(os.path.realpath(root))

    def visit(path: bytes, file_stat: os.stat_result) -> None:
        stamp.add_file(path, file_stat)
        file = find(os.fsdecode(path), file_stat)
        if file is not None:
            raise ConfigError(
                f"{os.fsdecode(path)} is {file.description}, but lies in a data set",
                where=os.path.join(root, os.fsdecode(path)),
                next="move the file out of the data set",
            )

    return visit


def has_changed(data: DataListing) -> bool:
    """True if the data set has changed since it was listed, or can no longer be read."""
    try:
        return compute_stamp(data.source) != data.stamp
    except OSError:
        return True


def make_data_listing(
    source: str, is_folder: bool, rows: Listing, stamp: str, host: str | None = None
) -> DataListing:
    """Return the DataListing of `rows`.

    `host`: the host that has the data set, or None for this machine. Raises Refused if the data set
    has no files.
    """
    if not rows.files:
        raise Refused(
            "the data set has no file that tfdeploy may send",
            where=source if host is None else f"{host}:{source}",
            next="correct `data:` in the job file",
        )
    top = os.path.realpath(source) if host is None else source
    return DataListing(
        source,
        is_folder,
        rows,
        rows.digest(),
        rows.attributes_digest(),
        tuple(_link_warnings(top, rows, is_local=host is None)),
        stamp,
    )


def _link_warnings(top: str, rows: Listing, *, is_local: bool) -> Iterator[str]:
    """Yield a text for each link out of the data set, and for each link that cannot be followed.

    `is_local`: whether the data set is on this machine. Elsewhere, no link can be followed.
    """
    for row in rows:
        path, target = os.fsdecode(row.path), os.fsdecode(row.target)
        if target and link_leads_outside(top, path, target):
            yield f"{path} is a link out of the data set (to {target})"
        elif target and is_local and not os.path.exists(link := os.path.join(top, path)):
            yield (
                f"{link} is a link to {target}, which leads to no file: a program that opens it "
                "fails; correct the link, or remove it"
            )
