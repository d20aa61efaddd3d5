"""Make a folder of everything that is hard to copy: names, modes, times, links, holes.

The content is the same each time.
"""

from __future__ import annotations

import os
from pathlib import Path

MIB = 1 << 20
SPARSE_BYTES = 1024 * MIB
# {offset in the sparse file: bytes}
ISLANDS = {100 * MIB + 17: b"first island", 900 * MIB: b"second island" * 1000}
ODD_NAMES = (
    b"plain",
    b"with space",
    b" leading and trailing ",
    b"quo'te\"s",
    b"-dash",
    b"--delete",
    b"#hash",
    b";semi",
    b"new\nline",
    b"tab\tand\rreturn",
    b"back\\slash",
    b"dollar$(x)`y`",
    b"star*?[a]",
    b"bytes\xff\xfe.py",
    "emoji\U0001f600.txt".encode(),
    "\u202ebidi".encode(),
    b"-folder/in -it/deep",
    b"{brace}",
    b"x" * 200,
)
FILE_MODES, FOLDER_MODES = (0o644, 0o755, 0o600, 0o444), (0o755, 0o500)
# Seconds since the epoch: the second day of 1970.
LONG_AGO_NS = 86_400 * 10**9 + 123_456_789
NOT_LONG_AGO_NS = 1_600_000_000 * 10**9 + 999_999_999


def write_names(folder: Path) -> None:
    """Write files with all kinds of names, an executable file, an empty file and a link."""
    for name in ODD_NAMES:
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(b"content of " + name)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "empty").write_bytes(b"")
    (folder / "link").symlink_to("plain")


def write_odd_tree(folder: Path) -> None:
    """Make the folder with all its files. Some of its folders are read-only."""
    folder.mkdir()
    write_names(folder)
    _write_links(folder / "links")
    _write_sparse(folder / "sparse")
    _write_empty_folders(folder / "none")
    _write_modes(folder / "modes")
    _set_times(folder)


def _write_modes(folder: Path) -> None:
    for folder_mode in FOLDER_MODES:
        inner = folder / f"folder {folder_mode:o}"
        inner.mkdir(parents=True)
        for mode in FILE_MODES:
            (inner / f"file {mode:o}").write_text(f"{folder_mode:o} {mode:o}")
            (inner / f"file {mode:o}").chmod(mode)
        inner.chmod(folder_mode)


def _write_links(folder: Path) -> None:
    """Make symbolic links to a file, to a folder and to paths that do not exist. Also make three
    hard links: to a file in the same folder, to a file in another folder, and to an empty file in
    another folder.
    """
    (folder / "deep").mkdir(parents=True)
    for name, target in (
        ("to a file", "one"),
        ("to a folder", "deep"),
        ("to nothing", "not there"),
        ("to\nodd", b"new\xff"),
    ):
        os.symlink(os.fsencode(target), os.fsencode(folder / name))
    (folder / "one").write_bytes(bytes(range(256)) * 2000)
    (folder / "z nothing").write_bytes(b"")
    for first, other in (
        ("one", "the same"),
        ("one", "deep/a the same"),
        ("z nothing", "deep/nothing too"),
    ):
        os.link(folder / first, folder / other)


def _write_sparse(path: Path) -> None:
    with path.open("wb") as file:
        for at, text in ISLANDS.items():
            file.seek(at)
            file.write(text)
        file.truncate(SPARSE_BYTES)


def _write_empty_folders(folder: Path) -> None:
    for name in ("here", "and/below/it", "-dash"):
        (folder / name).mkdir(parents=True)
    (folder / "here").chmod(0o500)


def _set_times(folder: Path) -> None:
    """Set the times of files and folders, innermost first, because creating a file changes the time
    of its folder.
    """
    for number, each in enumerate(sorted(folder.rglob("*"), reverse=True)):
        when = (LONG_AGO_NS, NOT_LONG_AGO_NS)[number % 2] + number * 10**9
        os.utime(each, ns=(when, when), follow_symlinks=False)
    os.utime(folder, ns=(NOT_LONG_AGO_NS, NOT_LONG_AGO_NS))
