"""Test broadcasts (hosts pass data on to each other) of releases and of `keep` folders.

A release is the code on a host; files in `keep` folders outlive a run. The tests check which of
these files a broadcast may write, and which of them the host reports as already present.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support.agent.release_host import TREE, Host
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.broadcast import BroadcastFiles, locate_files

CHANGED = {**TREE, "train.py": b"print(2)\n", "new/empty": b"", "new/full": b"full"}
NS = 5 * 10**9


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.sync("r1", TREE)
    return made


def of_release(host: Host, staging: str, *files: list[Any]) -> BroadcastFiles:
    return locate_files(
        Call(
            host.context, {"job": "job", "release": "r2", "staging": staging, "files": list(files)}
        )
    )


def test_empty_files_are_made_and_what_changed_in_part_lies_in_the_newest_release(
    host: Host,
) -> None:
    begun = host.begin("r2", CHANGED)
    # The host itself creates the empty file, so the answer does not list it as missing.
    assert sorted(begun["missing"]) == ["new/full", "train.py"]
    files = of_release(host, begun["staging"], ["new/full", 4, NS], ["train.py", 9, NS])
    assert (files.present_folder, files.incoming_folder) == (
        str(host.releases / "r1"),
        begun["staging"],
    )
    assert [(each.path, each.lacking, each.partial, each.old) for each in files.files] == [
        (b"new/full", True, False, 0),
        (b"train.py", True, False, 9),
    ]


def test_an_empty_file_that_nobody_lends_is_made_there(tmp_path: Path) -> None:
    host = Host(tmp_path)
    begun = host.begin("r1", {"a/empty": b""})
    of_release(host, begun["staging"], ["a/empty", 0, NS])
    about = (Path(begun["staging"]) / "a/empty").stat()
    assert (about.st_size, about.st_mtime_ns) == (0, NS)
    assert host.commit("r1", begun) == []


def test_a_half_is_gone_on_with_and_a_file_of_an_older_release_is_not_written_into(
    host: Host,
) -> None:
    begun = host.begin("r2", CHANGED)
    staging = Path(begun["staging"])
    (staging / "new/full").write_bytes(b"fu\0\0")
    os.link(host.releases / "r1/train.py", staging / "train.py")
    files = of_release(host, begun["staging"], ["new/full", 4, NS], ["train.py", 9, NS])
    assert [each.partial for each in files.files] == [True, False]
    assert not (staging / "train.py").exists() and (host.releases / "r1/train.py").exists()


@pytest.mark.parametrize(
    "row",
    [
        ["run.sh", 10, NS],
        ["train.py", 8, NS],
        ["../x", 9, NS],
        ["train.py", 9],
        ["train.py", -1, NS],
        ["train.py", "9", NS],
        7,
    ],
)
def test_only_files_that_were_asked_for_are_taken(host: Host, row: Any) -> None:
    begun = host.begin("r2", CHANGED)
    with pytest.raises(VerbError):
        of_release(host, begun["staging"], row)


def test_each_file_is_taken_once(host: Host) -> None:
    begun = host.begin("r2", CHANGED)
    with pytest.raises(VerbError):
        of_release(host, begun["staging"], ["train.py", 9, NS], ["train.py", 9, NS])


@pytest.mark.parametrize("staging", ["", "/tmp/.staging-x", "../.staging-x"])
def test_no_other_folder_is_a_staging_folder(host: Host, staging: str) -> None:
    with pytest.raises(VerbError):
        of_release(host, staging, ["train.py", 9, NS])


def of_keep(workdir: Path, *files: list[Any]) -> BroadcastFiles:
    return locate_files(
        Call(SessionContext(str(workdir), ""), {"job": "job", "keep": ["ck"], "files": list(files)})
    )


def test_of_keep_what_has_the_same_size_and_time_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "job/keep/ck"
    folder.mkdir(parents=True)
    for name, time_ns in (("same", NS + 7), ("other", 2 * NS)):
        (folder / name).write_text("text")
        os.utime(folder / name, ns=(time_ns, time_ns))
    files = of_keep(tmp_path, ["ck/other", 4, NS], ["ck/same", 4, NS], ["ck/new", 4, NS])
    assert [(each.lacking, each.old) for each in files.files] == [(True, 4), (False, 4), (True, 0)]
    assert files.present_folder == str(
        tmp_path / "job/keep"
    ) + "/" and files.incoming_folder.startswith(files.present_folder)


@pytest.mark.parametrize("path", ["ck/../../x", "other/x", "/etc/passwd", "ck", "ck/a\0b"])
def test_nothing_outside_keep_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(VerbError):
        of_keep(tmp_path, [path, 1, NS])
