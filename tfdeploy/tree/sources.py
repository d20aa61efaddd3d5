"""Read the source texts of the programs in a manifest, because planning code opens no files."""

from __future__ import annotations

import os
from pathlib import Path

from tfdeploy.model.manifest import Manifest

# Files of more bytes are not read, because they are generated and not written by hand.
MOST_BYTES = 1 << 20


def read_sources(manifest: Manifest) -> dict[str, str]:
    """Return {path: text} of the *.py and *.sh files of the manifest.

    Links, unreadable files and files of more than MOST_BYTES bytes are left out.
    """
    texts = {}
    for entry in manifest.entries:
        if (
            entry.path.endswith((".py", ".sh"))
            and entry.kind != "link"
            and entry.size <= MOST_BYTES
        ):
            try:
                content = Path(os.fsdecode(os.path.join(manifest.root, entry.path))).read_bytes()
            except OSError:
                continue
            texts[entry.path] = content.decode("utf-8", "replace")
    return texts
