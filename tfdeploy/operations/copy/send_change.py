"""Code that goes to a host in one call: what differs from a release that the host has, or all of a small tree.

Packed once for all hosts that lack the same. Where it does not fit, or the host cannot build on what it has, nothing was done
there and the caller sends the code as it always can: release.begin, files, release.commit.
"""

from __future__ import annotations

import json
import threading
import zlib
from dataclasses import dataclass

from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.model.answers.files import RELEASE_CHANGE, Present
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.manifest import Entry, Manifest
from tfdeploy.operations.copy.pack import Packer
from tfdeploy.operations.emit import emit_transfer
from tfdeploy.transport.protocols import AgentChannel
from tfdeploy.tree.earlier import Earlier

CALL_BYTES = 60 << 20  # of one call, unpacked: it has to fit into a frame
MOST_BYTES = 8 << 20  # of files that differ: of more, some may lie on the host under other names


@dataclass(frozen=True)
class Change:
    """`size`: of the blob, unpacked; `files_bytes`: of the files in it."""

    blob: bytes
    size: int
    files_bytes: int


class Changes:
    """From each release that was sent earlier to this one. Thread-safe: a second caller waits and gets the same."""

    def __init__(self, manifest: Manifest, packer: Packer, earlier: Earlier) -> None:
        self._manifest, self._packer, self._earlier = manifest, packer, earlier
        self._lock = threading.Lock()
        self._bases: list[str] | None = None
        self._made: dict[str, Change | None] = {}
        self._kept = False

    def bases(self) -> list[str]:
        """The newest first."""
        with self._lock:
            if self._bases is None:
                self._bases = [name for name in self._earlier.releases() if name != self._manifest.release]
            return self._bases

    def from_base(self, base: str, *, fresh: bool = False) -> Change | None:
        """None: it is too large, or the base is not known here. `base` "": all of it. `fresh`: read the files again."""
        with self._lock:
            if fresh or base not in self._made:
                self._made[base] = self._make(base)
            return self._made[base]

    @property
    def is_small(self) -> bool:
        """All of the code together."""
        return self._manifest.total_bytes <= MOST_BYTES

    def keep(self) -> None:
        """A host has this release now: later ones can be sent as differences from it."""
        with self._lock:
            if not self._kept:
                self._earlier.keep(self._manifest)
            self._kept = True

    def _make(self, base: str) -> Change | None:
        before = self._earlier.entries(base) if base else {}
        if before is None:
            return None
        new = [entry for entry in self._manifest.entries if before.get(entry.path) != entry]
        paths = [entry.path for entry in new if entry.kind != "link"]
        size = self._packer.size_bytes(paths)
        if not self._packer.fits(paths) or (base and size > MOST_BYTES):
            return None
        change = _packed(sorted(before.keys() - self._packer.paths), new, self._packer.contents(paths))
        return change if change.size <= CALL_BYTES else None


def _packed(removed: list[str], new: list[Entry], contents: dict[str, tuple[bytes, int]]) -> Change:
    """A file that cannot be read any more, or has another size by now, is empty here: the host finds that it has changed."""
    rows, parts = [], []
    for entry in new:
        content, mtime_ns = contents.get(entry.path, (b"", 0))
        if len(content) != entry.size:
            content = bytes(entry.size)
        rows.append([entry.path, entry.kind, entry.size, entry.sha256, entry.target, mtime_ns])
        parts.append(content)
    text = json.dumps({"removed": removed, "entries": rows}).encode("ascii") + b"\n"
    raw = b"".join([text, *parts])
    return Change(zlib.compress(raw, 1), len(raw), len(raw) - len(text))


def send_change(
    agent: AgentChannel, changes: Changes, there: Present, args: Args, host: str, emit: Emit, *, alone: bool = True
) -> tuple[bool, int]:
    """(whether the release is there now, bytes sent). `there`: what the host answered to `changes.bases()`. Much code goes so to
    one host `alone`."""
    base, sent = there.base, 0
    if base is None or (base and base not in changes.bases()) or not (base or alone or changes.is_small):
        return False, 0
    for again in (False, True):  # a second try repairs files that changed while they were packed
        change = changes.from_base(base, fresh=again)
        if change is None:
            return False, sent
        emit_transfer(emit, host, "code", "begin", 0, change.files_bytes)
        try:
            answer = agent.call(RELEASE_CHANGE, {**args, "base": base, "bytes": change.size}, blob=change.blob, timeout_s=600)
        except TfdeployError as error:
            emit_transfer(emit, host, "code", "failed", 0, change.files_bytes)
            if isinstance(error, AgentError) and error.code == "no_base":
                return False, sent
            raise
        sent += len(change.blob)
        emit_transfer(emit, host, "code", "done", change.files_bytes, change.files_bytes)
        if not answer.changed:
            changes.keep()
            return True, sent
    return False, sent
