"""A folder of code -> Manifest: every file hashed, every link checked, one release hash over all of it.

Reads only. A file that changes while it is read is read again; one that keeps changing is refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tfdeploy.errors import ConfigError, Refused
from tfdeploy.model.manifest import Entry, Manifest
from tfdeploy.tree.hash_cache import HashCache, stamp
from tfdeploy.tree.links import leads_out
from tfdeploy.tree.listing import IGNORE_FILE, list_code

THREADS = 4
TRIES = 3
_BLOCK_BYTES = 1 << 20
_BATCH = 64  # files a thread takes at once


def read_tree(root: Path, *, exclude: Iterable[str] = (), cache: Path | None = None) -> Manifest:
    """What `root` holds, sorted by path. `exclude`: paths relative to it; `cache`: a folder for remembered hashes.

    Raises ConfigError (missing, not a folder) and Refused (no git, empty, unreadable, keeps changing).
    """
    top = os.path.realpath(root)
    if not os.path.isdir(top):
        what = "is not a folder" if os.path.exists(top) else "does not exist"
        raise ConfigError(f"the code folder {what}", where=str(root), next="correct `code:` in the job file")
    paths, warnings = list_code(top, exclude)
    links, files = _links_and_files(top, paths, warnings)
    hashes = HashCache(cache, top)
    entries = sorted(links + _hash_all(top, files, hashes), key=lambda entry: entry.path)
    if not any(entry.kind != "link" for entry in entries):
        raise Refused(
            "the code folder holds no file to send",
            where=str(root),
            next=f"correct `code:` in the job file, or what .gitignore and {IGNORE_FILE} leave out",
        )
    hashes.save()
    return Manifest(top, release_hash(entries), tuple(entries), tuple(warnings))


def release_hash(entries: Iterable[Entry]) -> str:
    """32 hex digits of a SHA-256 over paths, contents, executable bits and link targets. `entries`: sorted by path."""
    total = hashlib.sha256()
    for entry in entries:
        total.update(os.fsencode(f"{entry.kind}\0{entry.path}\0{entry.sha256 or entry.target}\0"))
    return total.hexdigest()[:32]


def _links_and_files(top: str, paths: list[str], warnings: list[str]) -> tuple[list[Entry], list[tuple[str, os.stat_result]]]:
    """(links that stay inside, files). Left out: paths that are gone, below a link, or neither file nor link."""
    links: list[Entry] = []
    files: list[tuple[str, os.stat_result]] = []
    real_folders: dict[str, bool] = {"": True}
    for path in paths:
        if not _is_real_folder(top, path.rpartition("/")[0], real_folders):
            continue
        try:
            found = os.lstat(f"{top}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(f"{top}/{path}")
            if leads_out(top, path, target):
                warnings.append(f"{path} is a link out of the tree (to {target}): left out")
            else:
                links.append(Entry(path, "link", target=target))
        elif stat.S_ISREG(found.st_mode):
            files.append((path, found))
        else:
            warnings.append(f"{path} is neither a file nor a link: left out")
    return links, files


def _is_real_folder(top: str, folder: str, checked: dict[str, bool]) -> bool:
    """Whether no part of the path is a link: git still lists tracked files below a folder that became a link."""
    if folder not in checked:
        parent = folder.rpartition("/")[0]
        checked[folder] = _is_real_folder(top, parent, checked) and not os.path.islink(f"{top}/{folder}")
    return checked[folder]


def _hash_all(top: str, files: list[tuple[str, os.stat_result]], hashes: HashCache) -> list[Entry]:
    entries: list[Entry] = []
    unknown: list[tuple[str, os.stat_result]] = []
    for path, found in files:
        sha256 = hashes.get(path, stamp(found))
        if sha256 is None:
            unknown.append((path, found))
        else:
            entries.append(_entry(path, found, sha256))
    batches = [unknown[start : start + _BATCH] for start in range(0, len(unknown), _BATCH)]
    if len(batches) <= 1:
        return entries + [entry for batch in batches for entry in _hash_batch(top, batch, hashes)]
    with ThreadPoolExecutor(THREADS) as pool:
        for some in pool.map(lambda batch: _hash_batch(top, batch, hashes), batches):
            entries += some
    return entries


def _hash_batch(top: str, batch: list[tuple[str, os.stat_result]], hashes: HashCache) -> list[Entry]:
    entries = []
    for path, _ in batch:
        read_ns = time.time_ns()
        try:
            found, sha256 = hash_file(f"{top}/{path}")
        except FileNotFoundError:
            continue
        except OSError as error:
            hint = f"make it readable, or list it in {IGNORE_FILE}"
            raise Refused(f"{path!r} cannot be read: {error.strerror}", where=top, next=hint) from error
        hashes.put(path, stamp(found), sha256, read_ns)
        entries.append(_entry(path, found, sha256))
    return entries


def _entry(path: str, found: os.stat_result, sha256: str) -> Entry:
    return Entry(path, "exec" if found.st_mode & 0o100 else "file", found.st_size, sha256)


def hash_file(path: str) -> tuple[os.stat_result, str]:
    """(stat, sha256 of the content), both of the same state. Raises Refused when the file keeps changing, and OSError."""
    for _ in range(TRIES):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            before = os.fstat(descriptor)
            sha256, size = _hash(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if stamp(before) == stamp(after) and size == after.st_size:
            return after, sha256
    raise Refused(
        "a file keeps changing while it is read",
        where=path,
        next=f"let whatever writes it finish, or list it in {IGNORE_FILE}",
    )


def _hash(descriptor: int) -> tuple[str, int]:
    total, size = hashlib.sha256(), 0
    while block := os.read(descriptor, _BLOCK_BYTES):
        total.update(block)
        size += len(block)
    return total.hexdigest(), size
