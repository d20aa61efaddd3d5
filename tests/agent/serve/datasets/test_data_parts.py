"""Test a data set that is divided among hosts: which files a host reports and records as its own,
and in which folders the tasks of a run find the files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import listing
from tfdeploy.agent.bitmap import marked_numbers, unpack
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import FILE
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.datasets import files as data_files
from tfdeploy.agent.serve.server import find_verb
from tfdeploy.model.answers.failures import format_advice
from tfdeploy.operations.broadcast.wanted import (
    all_wanted_files,
    part_of_each_row,
    wanted_files_of_part,
)
from tfdeploy.tree import list_data_set

NAMES = ["a/0", "a/1", "b/2", "b/3"]


class Host:
    def __init__(self, folder: Path) -> None:
        self.context = SessionContext(str(folder / "workdir"), str(folder / "agent"))
        os.makedirs(self.context.workdir, mode=0o700)
        self.data = Path(self.context.workdir, "job/data/set")
        self.paths = RunPaths(str(Path(self.context.workdir, "job/runs/r/hosts/n1")))
        os.makedirs(self.paths.host_dir)

    def call(self, verb: str, blob: bytes = b"", **args: Any) -> Any:
        return find_verb(verb)(Call(self.context, {"job": "job", "name": "set", **args}, blob))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr("tfdeploy.agent.serve.lock.ensure_job_lock", lambda call: None)
    return Host(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    for name in NAMES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    os.link(top / "a/0", top / "b/same as 0")
    (top / "link").symlink_to("a/1")
    (top / "nothing").mkdir()
    return top


def bring(host: Host, source: Path, owners: list[int], mine: set[int]) -> None:
    """Copy files from the source to the host, as a sync does: the files of the parts whose numbers
    are in `mine`.

    `owners`: for each file, the number of the part to which it belongs.
    """
    listed = list_data_set(source)
    parts = part_of_each_row(listed.rows, owners)
    files = bytearray(len(listed.rows))
    for index, part in enumerate(parts):
        if part in mine:
            files[index >> 3] |= 1 << (index & 7)
    wanted = wanted_files_of_part(listed, parts, max(owners) + 1, files)
    host.call("data.lack", wanted.packed_listing)
    host.call("data.copy", root=str(source))
    assert host.call(
        "data.commit", wanted.packed_part_numbers, staged=True, parts=wanted.part_count
    )["ok"]
    assert host.call("data.state")["parts"] == wanted.part_numbers_digest


def list_files(folder: Path) -> list[str]:
    rows = listing.walk(str(folder))
    return [os.fsdecode(row.path) for row in rows if row.kind == FILE]


def test_a_host_with_one_part_has_its_files_and_all_folders(host: Host, source: Path) -> None:
    bring(host, source, [0, 1, 0, 1], {0})
    assert list_files(host.data) == ["a/0", "b/2", "b/same as 0"]
    assert (host.data / "nothing").is_dir() and (host.data / "link").is_symlink()
    data_files.make_part_folders(host.paths, {"set": [2, 0]})
    part = Path(host.paths.host_dir, "parts/set/0")
    assert part.is_symlink() and part.resolve() == host.data
    assert os.listdir(Path(host.paths.host_dir, "parts/set/none")) == []


def test_each_of_several_parts_is_a_folder_of_its_own_that_a_later_sync_does_not_change(
    host: Host, source: Path
) -> None:
    bring(host, source, [0, 1, 1, 2], {0, 1, 2})
    data_files.make_part_folders(host.paths, {"set": [3, 0, 2]})
    parts = Path(host.paths.host_dir, "parts/set")
    assert list_files(parts / "0") == ["a/0", "b/same as 0"]
    assert list_files(parts / "2") == ["b/3"]
    assert os.path.samefile(parts / "2/b/3", host.data / "b/3")
    (source / "b/3").write_text("another text")
    bring(host, source, [0, 1, 1, 2], {0, 1})
    assert (parts / "2/b/3").read_text() == "b/3"
    assert not (host.data / "b/3").exists()


@pytest.mark.parametrize(
    ("wanted", "why"), [([3, 0], "another number of parts"), ([2, 1], "a part that is elsewhere")]
)
def test_parts_that_are_not_there_are_refused(
    host: Host, source: Path, wanted: list[int], why: str
) -> None:
    bring(host, source, [0, 1, 0, 1], {0})
    with pytest.raises(VerbError, match="divided into") as caught:
        data_files.make_part_folders(host.paths, {"set": wanted})
    assert (caught.value.code, format_advice("n1", caught.value.advice, caught.value.details)) == (
        "no_data",
        "launch without --no-sync",
    ), why


def test_a_set_that_was_never_split_has_no_parts(host: Host, source: Path) -> None:
    host.call("data.lack", all_wanted_files(list_data_set(source)).packed_listing)
    host.call("data.copy", root=str(source))
    assert host.call("data.commit", staged=True)["ok"]
    assert host.call("data.state")["parts"] == ""
    with pytest.raises(VerbError, match="divided into 2 parts"):
        data_files.make_part_folders(host.paths, {"set": [2, 0]})


def test_it_says_which_files_it_has_and_in_which_part_they_were(host: Host, source: Path) -> None:
    bring(host, source, [0, 1, 1, 2], {1, 2})
    (source / "b/2").write_text("longer than before")
    rows = listing.walk(str(source))
    answer = host.call("data.held", rows.pack())
    paths_by_part = {
        part: [os.fsdecode(rows.path(row)) for row in marked_numbers(unpack(held))]
        for part, held in answer["held"]
    }
    assert paths_by_part == {1: ["a/1"], 2: ["b/3"]}


def test_a_host_that_has_nothing_says_so_and_nothing_is_made(host: Host, source: Path) -> None:
    answer = host.call("data.held", listing.walk(str(source)).pack())
    assert answer["held"] == []
    assert not host.data.parent.exists()


# --- a data set whose source is a folder on a host


def looked(host: Host, path: Path) -> tuple[list[str], dict[str, Any]]:
    parts: list[bytes] = []
    call = Call(host.context, {"path": str(path)}, b"", lambda item, blob: parts.append(blob))
    value: Any = find_verb("data.look")(call)
    return [os.fsdecode(row.path) for row in listing.unpack(b"".join(parts))], value


def test_a_look_lists_a_folder_or_a_file_and_its_stamp_changes_with_any_write(
    host: Host, source: Path
) -> None:
    paths, value = looked(host, source)
    assert paths == ["", "a", "a/0", "a/1", "b", "b/2", "b/3", "b/same as 0", "link", "nothing"]
    assert value["folder"] is True
    assert looked(host, source)[1] == value
    about = os.stat(source / "a/1")
    (source / "a/1").write_text("A/1")
    os.utime(source / "a/1", ns=(about.st_atime_ns, about.st_mtime_ns))
    assert looked(host, source)[1]["stamp"] != value["stamp"]
    assert looked(host, source / "b/2") == (
        ["2"],
        {**looked(host, source / "b/2")[1], "folder": False},
    )


@pytest.mark.parametrize(
    ("path", "code"),
    [("missing", "missing"), ("pipe", "unreadable"), ("link to a file", "unreadable")],
)
def test_what_cannot_be_read_is_refused(host: Host, source: Path, path: str, code: str) -> None:
    os.mkfifo(source / "pipe")
    (source / "link to a file").symlink_to("a/0")
    with pytest.raises(VerbError) as caught:
        looked(host, source / path)
    assert caught.value.code == code


def test_a_copy_of_a_sparse_file_keeps_its_holes(host: Host, source: Path) -> None:
    with (source / "a/sparse").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"island")
    bring(host, source, [0, 0, 0, 0, 0], {0})
    about = os.stat(host.data / "a/sparse")
    assert (about.st_size, about.st_blocks * 512 < 1 << 20) == (64 << 20, True)
    assert (host.data / "a/sparse").read_bytes() == (source / "a/sparse").read_bytes()
