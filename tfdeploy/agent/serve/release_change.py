"""`release.change`: a whole release in one call, from a release that is here (or from none) and what has come with the call.

The folder is new, so what is checked in memory need not be read back. A staging folder that an earlier sync has left is for
`release.begin`, which goes on in it.
"""

from __future__ import annotations

import os
import time
import zlib
from hashlib import sha256

from tfdeploy.agent import json_text, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, List, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.atomic import write_all
from tfdeploy.agent.host.fsync import flush
from tfdeploy.agent.serve import release_manifest
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.release_manifest import Entry
from tfdeploy.agent.serve.release_place import KEEP, check_room, remove_staging, staging_path, switch
from tfdeploy.agent.serve.release_retention import remove_old
from tfdeploy.agent.serve.release_state import is_present, look

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_BYTES = 96 << 20  # of what comes with the call, unpacked
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODES = {"file": 0o644, "exec": 0o755}

Content = Tuple[Entry, memoryview]


@fenced
@audited("sync", "sent")
def change(call: Call) -> Answer:
    """Make a release in one call, from another release (`base`) or from nothing (""), only where
    its name is the hash of all its content.

    Args: job, release, base, bytes, keep_releases?; blob: zlib of the JSON {"removed": [paths of
    the base], "entries": [[path, kind, bytes, sha256, target, mtime_ns], ...]}, a newline, and the
    contents of these files; `bytes`: its length, unpacked.

    Raises VerbError bad_manifest, disk, no_base: the base is not the sender's, not whole, or half a
    release lies here; then by release.begin.
    """
    workdir, job, release = call.context.workdir, call.name("job"), call.name("release")
    if is_present(workdir, job, release):
        return {"changed": []}
    removed, contents, links = _unpack(call.blob, call.integer("bytes"))
    wrong = [entry.path for entry, content in contents if not _is_right(content, entry)]
    if wrong:
        return {"changed": wrong}
    entries = [entry for entry, _ in contents] + links
    kept = _kept(call, removed.union(entry.path for entry in entries))
    whole = sorted(kept + entries)
    _check_whole(whole, release)
    folder, final = staging_path(call), layout.release_dir(workdir, job, release)
    if os.path.lexists(folder):
        raise _no_base("an earlier sync of this job was cut off here")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    check_room(folder, [entry for entry, _ in contents])
    try:
        _fill(folder, call, kept, contents, links)
        flush(folder, [entry.path for entry, _ in contents])
        release_manifest.save(release_manifest.path_of(final), whole, durable=True, release=release, time=time.time())
        switch(folder, final)
    except (VerbError, OSError):
        remove_staging(folder)
        raise
    remove_old(workdir, job, release, max(1, call.integer("keep_releases", KEEP)))
    return {"changed": []}


def _unpack(blob: bytes, size: int) -> Tuple["set[str]", List[Content], List[Entry]]:
    """(paths that are not taken from the base, files with their contents, links)."""
    if not 0 <= size <= MOST_BYTES:
        raise VerbError("bad_manifest", "a change of %d bytes is too large" % size)
    unpacker = zlib.decompressobj()
    try:
        text, newline, contents = unpacker.decompress(blob, size + 1).partition(b"\n")
        if not newline or not unpacker.eof or len(text) + 1 + len(contents) != size:
            raise VerbError("bad_manifest", "the change does not have the length that was announced")
        said = json_text.loads(text)
        removed = {path for path in said["removed"] if isinstance(path, str)}
        entries = [release_manifest.entry_of(row[:5])._replace(mtime_ns=_time(row[5])) for row in said["entries"]]
    except (zlib.error, ValueError, TypeError, KeyError, IndexError) as error:
        raise VerbError("bad_manifest", "the change cannot be read: %s" % error) from error
    release_manifest.check(entries)
    files = list(_contents([entry for entry in entries if entry.kind != "link"], memoryview(contents)))
    return removed, files, [entry for entry in entries if entry.kind == "link"]


def _time(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("a time is no whole number: %.100r" % (value,))
    return value


def _contents(files: List[Entry], all_contents: memoryview) -> Iterator[Content]:
    at = 0
    for entry in files:
        yield entry, all_contents[at : at + entry.size]
        at += entry.size
    if at != len(all_contents):
        raise VerbError("bad_manifest", "the files do not have the lengths that were announced")


def _is_right(content: memoryview, entry: Entry) -> bool:
    return len(content) == entry.size and sha256(content).hexdigest() == entry.sha256


def _kept(call: Call, but: "set[str]") -> List[Entry]:
    """The entries that come from the base: there, and as they were committed."""
    base = call.text("base")
    if not base:
        return []
    damaged, entries = look(call.context.workdir, call.name("job"), call.name("base"))
    if damaged:
        raise _no_base("the release %s is not whole here" % base)
    return [entry for entry in entries if entry.path not in but]


def _check_whole(entries: List[Entry], release: str) -> None:
    """It is the release that the sender means: its name says all of its content, as tree/read.py makes it."""
    lines = ["%s\0%s\0%s\0" % (entry.kind, entry.path, entry.sha256 or entry.target) for entry in entries]
    if sha256(os.fsencode("".join(lines))).hexdigest()[:32] != release:
        raise _no_base("what lies here and what has come do not make the release %s" % release)
    release_manifest.check_folders([entry.path for entry in entries])


def _fill(folder: str, call: Call, kept: List[Entry], contents: List[Content], links: List[Entry]) -> None:
    os.mkdir(folder)
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for each in sorted(release_manifest.folders([entry.path for entry in kept + links] + [e.path for e, _ in contents])):
            os.mkdir(each, dir_fd=root)
        for entry in links + [entry for entry in kept if entry.kind == "link"]:
            os.symlink(entry.target, entry.path, dir_fd=root)
        for entry, content in contents:
            _write(entry, content, root)
        files = [entry.path for entry in kept if entry.kind != "link"]
        if files:
            _lend(files, layout.release_dir(call.context.workdir, call.name("job"), call.name("base")), folder, root)
    finally:
        os.close(root)


def _write(entry: Entry, content: memoryview, root: int) -> None:
    descriptor = os.open(entry.path, _FLAGS, _MODES[entry.kind], dir_fd=root)  # less the umask
    try:
        write_all(descriptor, content)
        os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
    finally:
        os.close(descriptor)


def _lend(paths: List[str], base: str, folder: str, root: int) -> None:
    """Hard links to the base's files, by names below two open folders: a third of the time of whole paths."""
    source = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in paths:
            try:
                os.link(path, path, src_dir_fd=source, dst_dir_fd=root, follow_symlinks=False)
            except OSError:
                from tfdeploy.agent.serve.release_staging import lend

                if not lend(base + "/" + path, folder + "/" + path):
                    raise _no_base("the release that lends is being removed") from None
    finally:
        os.close(source)


def _no_base(why: str) -> VerbError:
    return VerbError("no_base", why)


VERBS = {"release.change": change}
