"""Parses, checks and stores the manifest of a release: the list of its files and links.

Pure, except for reading and writing the stored form. Refuses a path that could lead out of the
release.
"""

from __future__ import annotations

import os
import zlib

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import Any, Iterable, List, Optional, Set
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic, boot_id
from tfdeploy.agent.record import NamedTuple

SUFFIX = ".json"
VERSION = 1  # version of the stored form
MOST_BYTES = 512 << 20  # limit of an unpacked manifest, enough for a million files
_HEX = "0123456789abcdef"


class ManifestEntry(NamedTuple):
    path: str  # relative, with "/" as separator
    kind: str  # "file", "exec" or "link"
    size: int
    sha256: str  # "" for a link
    target: str  # of a link; "" for files
    # The file's time when the release was committed. If the file has another time later, its
    # content is compared.
    mtime_ns: int = 0


_ROW = [str, str, int, str, str]  # types of the values of an entry, as they are sent
_KINDS = [{str}, {str}, {int}, {str}, {str}, {int}]


class Manifest(NamedTuple):
    """The stored manifest of a release, as in the file releases/<hash>.json."""

    entries: List[ManifestEntry]
    release: Optional[str]
    time: Optional[float]
    # None if the files were flushed to disk; otherwise the boot id of the host when it received
    # them.
    boot: Optional[str] = None

    @property
    def may_be_torn(self) -> bool:
        """True if the host may have lost power before the files reached the disk. The caller must
        then compare the contents of the files with their hashes."""
        return self.boot not in (None, boot_id())


def unpack_manifest(blob: bytes) -> List[ManifestEntry]:
    """Unpack the manifest that a call of release.begin sends. Raises VerbError bad_manifest."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(blob, MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise VerbError(
                "bad_manifest", "the manifest is cut off or larger than %d bytes" % MOST_BYTES
            )
        entries = [_parse_entry(row) for row in json_text.loads(text)]
    except (zlib.error, ValueError, TypeError) as error:
        raise VerbError("bad_manifest", "the manifest cannot be read: %s" % error) from error
    check_entries(entries)
    return entries


def _parse_entry(row: Any) -> ManifestEntry:
    """Parse [path, kind, bytes, sha256, target]. Raises ValueError, TypeError."""
    path, kind, size, sha256, target = row
    if [*map(type, row)] != _ROW or size < 0:
        raise ValueError("an entry is not [path, kind, size, sha256, target]: %.200r" % (row,))
    return ManifestEntry(path, kind, size, sha256, target)


def check_entries(entries: Iterable[ManifestEntry]) -> None:
    """Check that every path stays inside the release, occurs once, and passes only through folders.
    Raises VerbError bad_manifest."""
    leaves: Set[str] = set()
    for entry in entries:
        steps = "/%s/" % entry.path
        if "//" in steps or "/./" in steps or "/../" in steps or "\0" in steps + entry.target:
            raise VerbError("bad_manifest", "the path %r leads out of the release" % entry.path)
        if entry.path in leaves:
            raise VerbError("bad_manifest", "the path %r occurs twice" % entry.path)
        if entry.kind == "link":
            if entry.sha256 or not entry.target:
                raise VerbError("bad_manifest", "%r is not a link with a target" % entry.path)
        elif entry.kind not in ("file", "exec"):
            raise VerbError("bad_manifest", "%r is of no known kind" % entry.path)
        elif len(entry.sha256) != 64 or entry.sha256.strip(_HEX):
            raise VerbError("bad_manifest", "%r has no sha256" % entry.path)
        leaves.add(entry.path)
    for folder in parent_folders(leaves):
        if folder in leaves:
            raise VerbError(
                "bad_manifest", "%r is no folder, but other paths lead through it" % folder
            )


def parent_folders(paths: Iterable[str]) -> Set[str]:
    """Return all folders above these paths, except the root."""
    parents: Set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in parents:
            parents.add(folder)
            folder = folder.rpartition("/")[0]
    return parents


def manifest_path(folder: str) -> str:
    """Return the path of the manifest of a release or of a staging folder."""
    return folder + SUFFIX


def list_manifests_newest_first(folder: str) -> List[str]:
    """List the manifests in a job's folder of releases, newest first."""
    releases = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                    releases.append((entry.stat().st_mtime_ns, entry.path))
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(releases, reverse=True)]


def newest_release(folder: str) -> Optional[str]:
    """Return the newest release in that folder."""
    return next((path[: -len(SUFFIX)] for path in list_manifests_newest_first(folder)), None)


def remove_manifest(folder: str) -> None:
    """Remove the manifest, so the folder no longer counts as a release. Raises OSError."""
    atomic.remove_file(manifest_path(folder))


def save_manifest(
    path: str,
    entries: List[ManifestEntry],
    *,
    release: Optional[str] = None,
    time: Optional[float] = None,
    boot: Optional[str] = None,
) -> None:
    """Write the manifest. A field that is None is left out. The file is not flushed to disk: a
    release whose manifest is missing or damaged is received again. Raises OSError."""
    record = {"v": VERSION, "entries": entries, "release": release, "time": time, "boot": boot}
    fields = {name: value for name, value in record.items() if value is not None}
    atomic.write_json(path, fields)


def contains_any_hash(path: str, hashes: Iterable[str]) -> bool:
    """Return True if a stored manifest contains one of these SHA-256 hashes. The function searches
    the manifest's text, because parsing the manifest would take longer."""
    try:
        with open(path, "rb") as stream:
            text = stream.read()
    except FileNotFoundError:
        return False
    return any(sha256.encode("ascii") in text for sha256 in hashes)


def load_manifest(path: str) -> Optional[Manifest]:
    """Return what `save_manifest` wrote, or None if the file is missing or damaged."""
    stored = atomic.read_json(path)
    if stored is None:
        return None
    try:
        entries = [ManifestEntry(*row) for row in stored["entries"]]
        kinds = [set(map(type, column)) for column in zip(*entries)]  # noqa: B905 - Python 3.8 lacks strict=
    except (KeyError, TypeError):
        return None
    if kinds and kinds != _KINDS:
        return None
    return Manifest(entries, stored.get("release"), stored.get("time"), stored.get("boot"))
