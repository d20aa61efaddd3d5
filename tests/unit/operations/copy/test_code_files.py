"""Test how the code of a job is packed: once for all hosts that lack the same files.

The code is refused if a file has changed since it was hashed.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.stopwatch import DEADLINE_S
from support.waiting import wait_for
from tfdeploy.operations.copy import code_files
from tfdeploy.operations.copy.code_files import CodeChanged, CodeFiles
from tfdeploy.tree import read_tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    for name in ("train.py", "lib/a.py", "lib/b.py"):
        (code / name).write_text(f"# {name}\n")
    (code / "link").symlink_to("train.py")
    return code


@pytest.fixture
def code(folder: Path) -> CodeFiles:
    code = CodeFiles(read_tree(folder, exclude=[], cache=None))
    wait_for(lambda: is_a_tick_later(folder), DEADLINE_S, "the kernel's clock to tick")
    return code


def is_a_tick_later(folder: Path) -> bool:
    """Return True if a file that is changed now gets a later ctime than all files in the folder
    have. (The kernel's clock for ctimes is coarse.)
    """
    clock = folder.with_name("clock")
    clock.touch()
    return clock.stat().st_ctime_ns > max(path.lstat().st_ctime_ns for path in folder.rglob("*"))


def test_contents_are_packed_once_for_hosts_that_lack_same_files(
    code: CodeFiles, folder: Path
) -> None:
    wanted = ("train.py", "lib/b.py")
    packed = code.packed_contents(wanted)
    times, _, contents = zlib.decompress(packed).partition(b"\n")
    assert json.loads(times) == [(folder / path).stat().st_mtime_ns for path in wanted]
    assert contents == b"# train.py\n# lib/b.py\n"
    assert code.packed_contents(wanted) is packed
    assert code.packed_contents(("lib/b.py",)) != packed


def pack_ahead(code: CodeFiles) -> None:
    """Pack all files ahead, and wait until the thread that packs has ended."""
    code.pack_ahead()
    for thread in threading.enumerate():
        if thread.name == "pack":
            thread.join(DEADLINE_S)


def test_all_files_are_packed_ahead(code: CodeFiles, folder: Path) -> None:
    pack_ahead(code)
    (folder / "train.py").unlink()
    packed = code.packed_contents(("lib/a.py", "lib/b.py", "train.py"))
    assert zlib.decompress(packed).endswith(b"\n# lib/a.py\n# lib/b.py\n# train.py\n")


# With this mark, an exception of the thread fails the test.
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_change_found_by_packing_ahead_is_reported_when_contents_are_asked(
    code: CodeFiles, folder: Path
) -> None:
    (folder / "train.py").write_text("")
    pack_ahead(code)
    with pytest.raises(CodeChanged, match=r"train\.py changed while it was sent"):
        code.packed_contents(("lib/a.py", "lib/b.py", "train.py"))


def test_files_that_are_not_sent_packed_are_not_packed_ahead(
    code: CodeFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_files, "MOST_BYTES", 20)
    pack_ahead(code)
    (folder / "train.py").unlink()
    with pytest.raises(CodeChanged):
        code.packed_contents(("lib/a.py", "lib/b.py", "train.py"))


def test_manifest_names_all_entries_and_host_may_request_only_files(code: CodeFiles) -> None:
    rows = json.loads(zlib.decompress(code.packed_manifest))
    assert [row[:2] for row in rows] == [
        ["lib/a.py", "file"],
        ["lib/b.py", "file"],
        ["link", "link"],
        ["train.py", "file"],
    ]
    assert code.paths == {"lib/a.py", "lib/b.py", "train.py"}


def rewritten(path: Path) -> None:
    """Change the content of the file, but keep its size and its modification time."""
    file_stat = path.stat()
    path.write_bytes(b"x" * file_stat.st_size)
    os.utime(path, ns=(file_stat.st_atime_ns, file_stat.st_mtime_ns))


def replaced(path: Path) -> None:
    """Replace the file by another file with the same content and the same modification time."""
    file_stat = path.stat()
    path.with_name("other").write_bytes(path.read_bytes())
    os.utime(path.with_name("other"), ns=(file_stat.st_atime_ns, file_stat.st_mtime_ns))
    path.with_name("other").rename(path)


@pytest.mark.parametrize(
    "change",
    [
        rewritten,
        replaced,
        Path.touch,
        Path.unlink,
        lambda path: path.write_text("longer than before"),
        lambda path: path.write_text(""),
        lambda path: (path.unlink(), path.symlink_to("a.py")),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_file_changed_since_hashing_is_reported(
    code: CodeFiles, folder: Path, change: Callable[[Path], object]
) -> None:
    change(folder / "lib/b.py")
    code.check_unchanged(["train.py"])
    with pytest.raises(CodeChanged, match=r"lib/b\.py changed while it was sent"):
        code.check_unchanged(["train.py", "lib/b.py"])
    with pytest.raises(CodeChanged):
        code.packed_contents(("lib/b.py",))


def test_contents_changed_within_one_clock_tick_are_refused(
    folder: Path,
) -> None:
    manifest = read_tree(folder, exclude=[], cache=None)
    (folder / "lib/b.py").write_text("# lib/c.py\n")
    now = read_tree(folder, exclude=[], cache=None)
    stamps = {entry.path: entry.stamp for entry in now.entries}
    entries = tuple(replace(entry, stamp=stamps[entry.path]) for entry in manifest.entries)
    code = CodeFiles(replace(manifest, entries=entries))
    assert code.packed_contents(("lib/a.py",))
    with pytest.raises(CodeChanged, match="changed while it was sent"):
        code.packed_contents(("lib/a.py", "lib/b.py"))
