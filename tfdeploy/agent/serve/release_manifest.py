"""What a release is made of, as it came over the wire and as it is remembered beside the release.

Pure but for reading and writing the remembered form. A path that could lead out of the release is refused here.
"""

from __future__ import annotations

import json
import re
import zlib

from tfdeploy.agent import frames
from tfdeploy.agent.annotations import Any, Dict, Iterable, List, Optional, Set
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic
from tfdeploy.agent.record import NamedTuple

MOST_BYTES = 512 << 20  # of an unpacked manifest: a million files and more
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Entry(NamedTuple):
    path: str  # relative, "/" between
    kind: str  # "file", "exec" or "link"
    size: int
    sha256: str  # "" of a link
    target: str  # "" but of a link
    mtime_ns: int = 0  # as committed; a file with another one is no longer what the manifest says


def unpack(blob: bytes) -> List[Entry]:
    """The manifest of release.begin. Raises VerbError bad_manifest."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(blob, MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise VerbError("bad_manifest", "the manifest is cut off or larger than %d bytes" % MOST_BYTES)
        entries = [_entry(row) for row in json.loads(text)]
    except (zlib.error, ValueError, TypeError) as error:
        raise VerbError("bad_manifest", "the manifest cannot be read: %s" % error) from error
    check(entries)
    return entries


def _entry(row: Any) -> Entry:
    path, kind, size, sha256, target = row
    if not all(isinstance(word, str) for word in (path, kind, sha256, target)) or not isinstance(size, int) or size < 0:
        raise ValueError("an entry is not [path, kind, size, sha256, target]: %.200r" % (row,))
    return Entry(path, kind, size, sha256, target)


def check(entries: Iterable[Entry]) -> None:
    """Every path stays inside, occurs once, and passes through nothing but folders. Raises VerbError bad_manifest."""
    leaves: Set[str] = set()
    for entry in entries:
        words = entry.path.split("/")
        if any(word in ("", ".", "..") for word in words) or "\0" in entry.path + entry.target:
            raise VerbError("bad_manifest", "the path %r leads out of the release" % entry.path)
        if entry.path in leaves:
            raise VerbError("bad_manifest", "the path %r occurs twice" % entry.path)
        if entry.kind not in ("file", "exec", "link") or (entry.kind == "link") != (entry.sha256 == ""):
            raise VerbError("bad_manifest", "%r is of no known kind" % entry.path)
        if entry.kind != "link" and not _SHA256.match(entry.sha256):
            raise VerbError("bad_manifest", "%r has no sha256" % entry.path)
        if entry.kind == "link" and not entry.target:
            raise VerbError("bad_manifest", "the link %r has no target" % entry.path)
        leaves.add(entry.path)
    for folder in folders(leaves):
        if folder in leaves:
            raise VerbError("bad_manifest", "%r is no folder, but other paths lead through it" % folder)


def folders(paths: Iterable[str]) -> Set[str]:
    """Every folder above the paths, without the root."""
    found: Set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def save(path: str, entries: List[Entry], *, durable: bool = False, **more: Any) -> None:
    atomic.write_json(path, dict(more, v=frames.VERSION, entries=[list(entry) for entry in entries]), durable=durable)


def mentions(path: str, contents: Iterable[str]) -> bool:
    """Whether a saved manifest names one of these sha256: quicker than taking it apart."""
    try:
        with open(path, "rb") as stream:
            text = stream.read()
    except FileNotFoundError:
        return False
    return any(sha256.encode("ascii") in text for sha256 in contents)


def load(path: str) -> Optional[Dict[str, Any]]:
    """What `save` wrote, with its entries; None where there is nothing that can be read."""
    fields = atomic.read_json(path)
    if fields is None:
        return None
    try:
        fields["entries"] = [Entry(*row) for row in fields["entries"]]
    except (KeyError, TypeError):
        return None
    return fields
