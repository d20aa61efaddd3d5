"""Pack the code once for all hosts: its list of files (the manifest), and the contents of files.

A file counts as changed if its size, times or inode differ from those at the time of hashing. If a
file is written twice within one tick of the kernel's clock, none of these differ. So contents are
hashed again when they are packed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tfdeploy.errors import Refused
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.manifest import Manifest
from tfdeploy.transport.protocols import Session
from tfdeploy.tree.hash_cache import make_stamp

# If a host lacks at most this many bytes of files, the call that commits the release also sends the
# files. For so few bytes, this is faster than rsync.
MOST_BYTES = 8 << 20
# Files that at least two hosts lack are broadcast if they have at least this many bytes in total.
LEAST_BROADCAST_BYTES = 8 << 20
NEXT = "wait until no program writes to the code, or list the changing file in .tfdeployignore"
_MTIME = 1  # the index of the mtime in a file's stamp, which hash_cache.make_stamp returns


class CodeChanged(Refused):
    """The code folder no longer matches its manifest and must be read again.

    `bytes_sent` is the number of bytes that this attempt has sent.
    """

    bytes_sent = 0


@dataclass(frozen=True)
class ReadyHost:
    """A host that is ready to receive files of a release (one version of the code).

    `missing_paths` are the paths of the files that the host lacks. `staging` is the folder on the
    host that receives them.
    """

    session: Session
    staging: str
    missing_paths: tuple[str, ...]


class CodeFiles:
    """The manifest and contents of the code.

    Thread-safe: if two threads ask for the same packed contents, the second thread waits for the
    first and gets the same bytes.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.root, self._manifest = manifest.root, manifest
        self._entries = {entry.path: entry for entry in manifest.entries if entry.kind != "link"}
        # The paths that a host may request. Links are left out, because the host makes them itself.
        self.paths = frozenset(self._entries)
        self._lock = threading.Lock()
        self._packed: tuple[tuple[str, ...], bytes] | None = None

    @cached_property
    def packed_manifest(self) -> bytes:
        """Return the list of the code's files as the verb release.begin sends it.

        It has one JSON row [path, kind, bytes, sha256, target] for each file, compressed by zlib.
        """
        rows = [
            [each.path, each.kind, each.size, each.sha256, each.target]
            for each in self._manifest.entries
        ]
        return zlib.compress(json.dumps(rows).encode("ascii"), 1)

    def size_bytes(self, paths: Iterable[str]) -> int:
        return sum(self._entries[path].size for path in paths)

    def mtime_ns(self, path: str) -> int:
        return self._entries[path].stamp[_MTIME]

    def pack_ahead(self) -> None:
        """Start to pack all files on a thread, for hosts that probably lack all of them.

        `packed_contents` of all files then returns sooner. Does nothing if the files are so large
        that they are sent in another way.
        """
        paths = tuple(self._entries)
        if self.size_bytes(paths) > MOST_BYTES:
            return

        def pack() -> None:
            # A later call of `packed_contents` raises CodeChanged again.
            with contextlib.suppress(CodeChanged):
                self.packed_contents(paths)

        start_thread(pack, name="pack")

    def packed_contents(self, paths: tuple[str, ...]) -> bytes:
        """Return the contents of the files `paths` as the verb release.commit sends them.

        The bytes are a JSON list of mtimes, a newline, and the contents, compressed by zlib. Raises
        CodeChanged.
        """
        with self._lock:
            if self._packed is None or self._packed[0] != paths:
                times = json.dumps([self.mtime_ns(path) for path in paths]).encode("ascii")
                contents = self._read_files(paths)
                self._packed = paths, zlib.compress(b"".join([times, b"\n", *contents]), 1)
            return self._packed[1]

    def check_unchanged(self, paths: Iterable[str]) -> None:
        """Raise CodeChanged unless the files are as they were when they were hashed."""
        changed = [path for path in paths if not self._is_unchanged(path)]
        if changed:
            raise self.code_changed_error(changed)

    def code_changed_error(self, paths: list[str]) -> CodeChanged:
        """Return an error for the changed files `paths`. Its text names the first of them."""
        further = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        return CodeChanged(
            f"{paths[0]} changed while it was sent{further}", where=self.root, next=NEXT
        )

    def _is_unchanged(self, path: str) -> bool:
        try:
            return make_stamp(os.lstat(f"{self.root}/{path}")) == self._entries[path].stamp
        except OSError:
            return False

    def _read_files(self, paths: Iterable[str]) -> list[bytes]:
        """Return the contents of these files. Raises CodeChanged."""
        contents, changed = [], []
        for path in paths:
            content = self._read_file(path)
            if content is None:
                changed.append(path)
            else:
                contents.append(content)
        if changed:
            raise self.code_changed_error(changed)
        return contents

    def _read_file(self, path: str) -> bytes | None:
        """Return the file's content, or None if it is not as it was when it was hashed."""
        entry = self._entries[path]
        try:
            descriptor = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(entry.size)
                stamp = make_stamp(os.fstat(descriptor))
        except OSError:
            return None
        is_same = stamp == entry.stamp and hashlib.sha256(content).hexdigest() == entry.sha256
        return content if is_same else None
