"""What the code of one folder consisted of when it was sent earlier: a host that has that is sent the differences alone.

It lies in the state folder, beside the hashes. What cannot be read is not there; what cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path

from tfdeploy.machine.private_files import make_private_folder, write_private_file
from tfdeploy.model.manifest import Entry, Manifest

MOST = 5  # as many as a host keeps releases
_NAME = re.compile(r"[0-9a-f]{32}\Z")


class Earlier:
    """`folder` None: nothing is kept."""

    def __init__(self, folder: Path | None, root: str) -> None:
        self._folder = folder / (hashlib.sha256(os.fsencode(root)).hexdigest()[:32] + ".sent") if folder else None

    def releases(self) -> list[str]:
        """The newest first."""
        found: list[tuple[int, str]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder) if self._folder else ():
                if _NAME.match(entry.name):
                    found.append((entry.stat().st_mtime_ns, entry.name))
        return [name for _, name in sorted(found, reverse=True)]

    def entries(self, release: str) -> dict[str, Entry] | None:
        """By path; None: it is not there."""
        if self._folder is None or not _NAME.match(release):
            return None
        try:
            rows = json.loads((self._folder / release).read_bytes())
            return {path: Entry(path, kind, size, sha256, target) for path, kind, size, sha256, target in rows}
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, manifest: Manifest) -> None:
        if self._folder is None:
            return
        rows = [[each.path, each.kind, each.size, each.sha256, each.target] for each in manifest.entries]
        with contextlib.suppress(OSError):
            make_private_folder(self._folder)
            write_private_file(self._folder / manifest.release, json.dumps(rows))
            for old in self.releases()[MOST:]:
                (self._folder / old).unlink(missing_ok=True)
