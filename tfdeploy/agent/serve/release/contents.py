"""Writes those files of a release that are sent in the blob of `release.commit`. Small changes of
the code arrive in this way, without rsync.

The contents are in the order in which `release.begin` listed the missing files. They arrive through
the session, so SSH protects their integrity.
"""

from __future__ import annotations

import os
import zlib

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.atomic import write_all
from tfdeploy.agent.serve.release.manifest import ManifestEntry

MOST_BYTES = 96 << 20  # limit of the unpacked contents
TIME_BYTES = 32  # limit of the characters of one file's time in the JSON list
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_MODES = {"file": 0o644, "exec": 0o755}  # modes, from which the umask is subtracted


def write_missing_files(
    folder: str, entries: List[ManifestEntry], missing: List[str], blob: bytes
) -> List[ManifestEntry]:
    """Write the missing files. Return all entries; those of the written files now have the files'
    times.

    The blob is the zlib of the JSON list of these times (mtime_ns), a newline, and the contents.
    Raises VerbError bad_manifest, OSError.
    """
    by_path = {entry.path: entry for entry in entries}
    wanted = [by_path[path] for path in missing]
    times, contents = _unpack_contents(blob, wanted)
    root, offset = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), 0
    try:
        for entry, mtime_ns in zip(wanted, times):  # noqa: B905 - Python 3.8 lacks strict=
            _write_file(root, entry, contents[offset : offset + entry.size], mtime_ns)
            offset += entry.size
    except OSError as error:
        error.filename = folder  # this makes the error name a path on the full disk
        raise
    finally:
        os.close(root)
    new_times = {entry.path: mtime_ns for entry, mtime_ns in zip(wanted, times)}  # noqa: B905
    return [
        entry._replace(mtime_ns=new_times[entry.path]) if entry.path in new_times else entry
        for entry in entries
    ]


def _unpack_contents(blob: bytes, entries: List[ManifestEntry]) -> Tuple[List[int], memoryview]:
    size = sum(entry.size for entry in entries)
    unpacker = zlib.decompressobj()
    try:
        max_bytes = min(size, MOST_BYTES) + TIME_BYTES * (len(entries) + 1)
        text, _, contents = unpacker.decompress(blob, max_bytes).partition(b"\n")
        times = json_text.loads(text)
    except (zlib.error, ValueError) as error:
        raise VerbError("bad_manifest", "the files cannot be unpacked: %s" % error) from error
    if not unpacker.eof or len(contents) != size:
        raise VerbError("bad_manifest", "the files do not have the lengths that were announced")
    if not isinstance(times, list) or [*map(type, times)] != [int] * len(entries):
        raise VerbError(
            "bad_manifest", "the list of modification times does not fit the list of files"
        )
    return times, memoryview(contents)


def _write_file(root: int, entry: ManifestEntry, content: memoryview, mtime_ns: int) -> None:
    """Write one file. Always creates a new file, because an existing one may be a hard link into an
    older release."""
    mode = _MODES[entry.kind]
    try:
        descriptor = os.open(entry.path, _FLAGS, mode, dir_fd=root)
    except FileExistsError:
        os.unlink(entry.path, dir_fd=root)
        descriptor = os.open(entry.path, _FLAGS, mode, dir_fd=root)
    try:
        write_all(descriptor, content)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    finally:
        os.close(descriptor)
