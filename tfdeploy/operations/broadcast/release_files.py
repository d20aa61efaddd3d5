"""The files of a large release, to all hosts that lack the same ones, by one broadcast. release.commit checks them as ever.

Small releases do not come here: each host has its own copy from this machine before it would have found its parent.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfdeploy.model.events import Emit
from tfdeploy.model.manifest import Manifest
from tfdeploy.operations.broadcast.data_sets import Outcome
from tfdeploy.operations.broadcast.named_files import NamedFile, NamedFiles, listing_of
from tfdeploy.operations.broadcast.source import Source, SourceChanged
from tfdeploy.operations.broadcast.taker import Taker
from tfdeploy.transport.protocols import Session

LEAST_BYTES = 4 << 20  # of all files that a host lacks


@dataclass(frozen=True)
class Begun:
    """A host that lacks files of a release. `staging`: the folder there that they go to."""

    session: Session
    staging: str
    wanted: tuple[str, ...]


Place = Callable[[Session], None]


def send_release_files(job: str, manifest: Manifest, begun: Mapping[str, Begun], emit: Emit, place: Place) -> dict[str, Outcome]:
    """Return the outcomes by host. `place`: called for each host as soon as it has all of its files.

    Hosts without an outcome were sent nothing: no other host lacks the same files, or these are small.
    """
    sizes = {entry.path: entry.size for entry in manifest.entries}
    groups: dict[tuple[str, ...], dict[str, Begun]] = {}
    for name, each in begun.items():
        groups.setdefault(tuple(sorted(each.wanted)), {})[name] = each
    found: dict[str, Outcome] = {}
    for wanted, group in groups.items():
        if len(group) > 1 and sum(sizes[path] for path in wanted) >= LEAST_BYTES:
            found.update(_send(job, manifest, [(path, sizes[path]) for path in wanted], group, emit, place))
    return found


def _send(
    job: str, manifest: Manifest, wanted: list[tuple[str, int]], group: Mapping[str, Begun], emit: Emit, place: Place
) -> dict[str, Outcome]:
    try:
        files = tuple(_named(manifest.root, path, size) for path, size in wanted)
        moved = NamedFiles(files, "code", {"job": job, "release": manifest.release}, emit)
        source = Source(manifest.root, listing_of(files), list(range(len(files))))
        total = moved.total_bytes
        takers = {name: Taker(each.session, total, total, join_args={"staging": each.staging}) for name, each in group.items()}
        return moved.send(secrets.token_hex(8), source, takers, place)
    except SourceChanged as error:
        return dict.fromkeys(group, error)


def _named(root: str, path: str, size: int) -> NamedFile:
    """Raises SourceChanged."""
    place = os.path.join(root, path)
    try:
        about = os.lstat(place)
    except OSError as error:
        raise SourceChanged(f"{path} is gone", where=root) from error
    if about.st_size != size:
        raise SourceChanged(f"{path} changed while it was sent", where=root)
    return path, size, about.st_mtime_ns
