"""Return the Manifest of a folder of code: hash files, check links, and compute the release hash.

A file that changes while it is read is read again. If it keeps changing, Refused is raised. Nothing
in the folder is changed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tfdeploy.errors import ConfigError, Refused
from tfdeploy.model.manifest import Manifest, ManifestEntry, is_written_by_tfdeploy
from tfdeploy.tree.hash_cache import HashCache, make_stamp
from tfdeploy.tree.key_blocks import SEARCHED_BYTES, private_key_line
from tfdeploy.tree.links import link_leads_outside
from tfdeploy.tree.listing import IGNORE_FILE, git_tracked_paths, list_code
from tfdeploy.tree.withheld_files import NONE, WithheldFile, WithheldFiles

THREADS = 4  # number of threads that hash files
TRIES = 3  # a changing file is read at most this many times
_BLOCK_BYTES = 1 << 20
_BATCH = 64  # number of files that a thread hashes at a time
FileWithStat = tuple[str, os.stat_result]  # (path, its lstat)
# (entry, line number of the first private key in the file's content or 0, see key_blocks.py)
HashedEntry = tuple[ManifestEntry, int]
# If tfdeploy itself wrote a file (a report or a table), the hash cache stores the file's sha256
# with this prefix.
_OWN = "own:"


def read_tree(
    root: Path,
    *,
    exclude: Iterable[str] = (),
    cache: Path | None = None,
    withheld_files: WithheldFiles = NONE,
) -> Manifest:
    """Return the manifest of the folder `root`. Its entries are sorted by path.

    `exclude`: paths relative to `root`. `cache`: the folder of the hash cache, or None to cache no
    hashes. `withheld_files`: files that must not be sent; a warning names them.

    Raises ConfigError (`root` is missing or not a folder, or git tracks a secret file) and Refused
    (git is missing, the folder has no file, or a file is unreadable or keeps changing).
    """
    top = os.path.realpath(root)
    if not os.path.isdir(top):
        raise ConfigError(
            f"the code folder {'is not a folder' if os.path.exists(top) else 'does not exist'}",
            where=str(root),
            next="correct `code:` in the job file",
        )
    paths, warnings = list_code(top, exclude)
    links, files, withheld = _classify_paths(top, paths, warnings, withheld_files)
    if withheld:
        _refuse_tracked_secrets(top, withheld)
        named = ", ".join(f"{path} ({file.description})" for path, file in withheld.items())
        warnings.append(f"not sent: {named}")
    hashes = HashCache(cache, top)
    hashed = _drop_tfdeploy_reports(top, _hash_all(top, files, hashes))
    entries = sorted(links + [entry for entry, _ in hashed], key=lambda entry: entry.path)
    if not any(entry.kind != "link" for entry in entries):
        raise Refused(
            "the code folder has no file that tfdeploy may send",
            where=str(root),
            next="correct `code:` in the job file, or the patterns in .gitignore and "
            f"{IGNORE_FILE}",
        )
    hashes.save()
    keys = sorted((entry.path, line) for entry, line in hashed if line)
    return Manifest(top, release_hash(entries), tuple(entries), tuple(warnings), tuple(keys))


def release_hash(entries: Iterable[ManifestEntry]) -> str:
    """Return the hash that names a release (one version of the code).

    It is a hash of paths, contents, executable bits and link targets: 32 hex digits, the first half
    of a SHA-256. `entries` must be sorted by path.
    """
    total = hashlib.sha256()
    for entry in entries:
        total.update(os.fsencode(f"{entry.kind}\0{entry.path}\0{entry.sha256 or entry.target}\0"))
    return total.hexdigest()[:32]


def _classify_paths(
    top: str, paths: list[str], warnings: list[str], withheld_files: WithheldFiles
) -> tuple[list[ManifestEntry], list[FileWithStat], dict[str, WithheldFile]]:
    """Return (links that stay inside the tree, files to send, files that must not be sent).

    Paths that are missing, below a link, or neither a file nor a link are left out. So are files
    into which the shell redirects the output of this process, because they change all the time.
    Adds texts to `warnings`.
    """
    links: list[ManifestEntry] = []
    files: list[FileWithStat] = []
    withheld: dict[str, WithheldFile] = {}
    find_withheld = withheld_files.make_finder(top)
    outputs = [(each.st_dev, each.st_ino) for each in map(os.fstat, (1, 2))]
    real_folders: dict[str, bool] = {"": True}
    for path in paths:
        if not _is_without_links(top, path.rpartition("/")[0], real_folders):
            continue
        try:
            file_stat = os.lstat(f"{top}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(file_stat.st_mode):
            target = os.readlink(f"{top}/{path}")
            if link_leads_outside(top, path, target):
                warnings.append(f"{path} is a link out of the tree (to {target}): left out")
            else:
                links.append(ManifestEntry(path, "link", target=target))
        elif stat.S_ISREG(file_stat.st_mode):
            if (file := find_withheld(path, file_stat)) is not None:
                withheld[path] = file
            elif (file_stat.st_dev, file_stat.st_ino) not in outputs:
                files.append((path, file_stat))
        else:
            warnings.append(f"{path} is neither a file nor a link: left out")
    return links, files, withheld


def _refuse_tracked_secrets(top: str, withheld: dict[str, WithheldFile]) -> None:
    """Raise ConfigError if git tracks a secret file.

    In that case, every clone of the repository has the secret.
    """
    tracked_paths = git_tracked_paths(
        top, [path for path, file in withheld.items() if file.is_secret]
    )
    if tracked_paths:
        tracked_path = os.path.join(top, tracked_paths[0])
        command = shlex.join(
            [
                "git",
                "-C",
                os.path.dirname(tracked_path),
                "rm",
                "--cached",
                os.path.basename(tracked_path),
            ]
        )
        raise ConfigError(
            f"{tracked_paths[0]} is {withheld[tracked_paths[0]].description}, and git tracks it",
            where=tracked_path,
            next=f"`{command}`, and replace the secret by a new one if others have the repository; "
            f"or list the file in {IGNORE_FILE}",
        )


def _is_without_links(top: str, folder: str, checked: dict[str, bool]) -> bool:
    """True if neither `folder` nor a folder above it, up to `top`, is a link.

    This is checked because git still lists tracked files below a folder that was replaced by a
    link. `checked` caches the results.
    """
    if folder not in checked:
        parent = folder.rpartition("/")[0]
        checked[folder] = _is_without_links(top, parent, checked) and not os.path.islink(
            f"{top}/{folder}"
        )
    return checked[folder]


def _hash_all(top: str, files: list[FileWithStat], hashes: HashCache) -> list[HashedEntry]:
    """Return the entry of each file. Threads compute the hashes that are not in the cache."""
    hashed: list[HashedEntry] = []
    unknown: list[str] = []
    for path, file_stat in files:
        cached = hashes.get(path, make_stamp(file_stat))
        if cached is None:
            unknown.append(path)
        else:
            hashed.append((_make_entry(path, file_stat, cached[1]), cached[2]))
    batches = [unknown[start : start + _BATCH] for start in range(0, len(unknown), _BATCH)]
    if len(batches) <= 1:
        return hashed + [each for batch in batches for each in _hash_batch(top, batch, hashes)]
    with ThreadPoolExecutor(THREADS) as pool:
        for batch_hashes in pool.map(lambda batch: _hash_batch(top, batch, hashes), batches):
            hashed += batch_hashes
    return hashed


def _drop_tfdeploy_reports(top: str, files: list[HashedEntry]) -> list[HashedEntry]:
    """Return `files` without reports and tables that tfdeploy wrote, unless git tracks them."""
    reports = {entry.path for entry, _ in files if entry.sha256.startswith(_OWN)}
    if not reports:
        return files
    left_out = reports - set(git_tracked_paths(top, sorted(reports)))
    return [
        (replace(entry, sha256=entry.sha256.removeprefix(_OWN)), line)
        for entry, line in files
        if entry.path not in left_out
    ]


def _hash_batch(top: str, paths: list[str], hashes: HashCache) -> list[HashedEntry]:
    """Hash these files, add the hashes to the cache, and return their entries.

    Missing files are left out. Raises Refused if a file is unreadable or keeps changing.
    """
    hashed = []
    for path in paths:
        read_ns = time.time_ns()
        try:
            file_stat, sha256, line = hash_file(f"{top}/{path}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Refused(
                f"{path!r} cannot be read: {error.strerror}",
                where=top,
                next=f"make the file readable, or list it in {IGNORE_FILE}",
            ) from error
        hashes.put(path, make_stamp(file_stat), sha256, read_ns, line)
        hashed.append((_make_entry(path, file_stat, sha256), line))
    return hashed


def _make_entry(path: str, file_stat: os.stat_result, sha256: str) -> ManifestEntry:
    return ManifestEntry(
        path,
        "exec" if file_stat.st_mode & 0o100 else "file",
        file_stat.st_size,
        sha256,
        stamp=make_stamp(file_stat),
    )


def hash_file(path: str) -> tuple[os.stat_result, str, int]:
    """Return (stat, sha256 of the content, private_key_line of the content).

    The file did not change between the reads of these values. If tfdeploy wrote the file as a
    report, the prefix _OWN is put before the sha256. Raises Refused if the file keeps changing, and
    OSError.
    """
    for _ in range(TRIES):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            before = os.fstat(descriptor)
            sha256, size, line = _hash_descriptor(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if make_stamp(before) == make_stamp(after) and size == after.st_size:
            return after, sha256, line
    raise Refused(
        "a file keeps changing while it is read",
        where=path,
        next=f"wait until no program writes to this file, or list the file in {IGNORE_FILE}",
    )


def _hash_descriptor(descriptor: int) -> tuple[str, int, int]:
    """Return (sha256, number of bytes, private_key_line) of an open file."""
    total, size, searched, prefix = hashlib.sha256(), 0, b"", ""
    while block := os.read(descriptor, _BLOCK_BYTES):
        if not size and is_written_by_tfdeploy(block):
            prefix = _OWN
        total.update(block)
        size += len(block)
        if size <= SEARCHED_BYTES:
            searched = searched + block if searched else block
    return (
        prefix + total.hexdigest(),
        size,
        private_key_line(searched) if size <= SEARCHED_BYTES else 0,
    )
