"""Find a file of a manifest that contains a secret value. This module only reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tfdeploy.model.job import Secret
from tfdeploy.model.manifest import Manifest
from tfdeploy.tree.key_blocks import SEARCHED_BYTES

# Shorter values are not searched for, because a text of so few characters may be in a program by
# chance.
SHORTEST = 8


class FoundSecret(NamedTuple):
    """The file and line at which a secret value was found."""

    path: str
    line: int
    secret_name: str  # name of the secret


def find_secret_value(
    manifest: Manifest, secret_by_variable: Mapping[str, Secret]
) -> FoundSecret | None:
    """Return the file and line of the first secret value in the manifest's files, or None.

    Each value is searched for as it is, and as JSON writes it. Files of more than SEARCHED_BYTES
    bytes are not searched.
    """
    needles = [
        (needle, name)
        for name, secret in secret_by_variable.items()
        for needle in secret.encoded_forms(SHORTEST)
    ]
    for path, content in _read_searched_files(manifest) if needles else ():
        for needle, name in needles:
            if needle in content:
                return FoundSecret(path, content.count(b"\n", 0, content.index(needle)) + 1, name)
    return None


def _read_searched_files(manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Yield (path, content) of the files that are searched.

    Unreadable files are skipped, because they cannot be sent either.
    """
    top = manifest.root + "/"
    for entry in manifest.entries:
        if entry.kind == "link" or not SHORTEST <= entry.size <= SEARCHED_BYTES:
            continue
        try:
            descriptor = os.open(top + entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            yield entry.path, os.read(descriptor, SEARCHED_BYTES)
        except OSError:
            continue
        finally:
            os.close(descriptor)
