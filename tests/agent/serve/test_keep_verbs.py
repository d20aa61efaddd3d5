"""Test that a host puts in place either all files of another host's `keep` folders or none of them.

Checkpoint records are put in place last. No file is deleted, and no path leads out of the folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import NewCluster
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.server import find_verb


class Host:
    def __init__(self, workdir: Path) -> None:
        self.context = SessionContext(str(workdir), "")
        self.keep = workdir / "job" / "keep"

    def call(self, verb: str, **args: Any) -> Any:
        return find_verb(verb)(Call(self.context, dict(args, job="job")))

    def send(self, files: dict[str, str]) -> list[Any]:
        """Write the files to the paths where rsync would write them. Return the arguments with
        which keep.place installs them."""
        folder = Path(self.call("keep.begin", bytes=10)["folder"])
        rows = []
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            about = (folder / path).stat()
            rows.append([path, about.st_size, about.st_mtime_ns])
        return rows

    def list_missing(self, rows: list[Any], aside: tuple[str, ...] = ()) -> list[str]:
        missing: list[str] = self.call("keep.place", keep=["ck"], files=rows, aside=list(aside))[
            "missing"
        ]
        return missing


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_all_of_it_is_put_in_place_and_the_rest_stays(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host.keep / "ck").mkdir(parents=True)
    (host.keep / "ck" / "mine").write_text("stays")
    (host.keep / "ck" / "checkpoint").write_text("old")
    moved: list[str] = []
    rename = os.rename

    def record_rename(source: str, target: str) -> None:
        if target.startswith(str(host.keep)):
            moved.append(os.path.basename(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", record_rename)
    assert (
        host.list_missing(host.send({"ck/checkpoint": "new", "ck/deep/ckpt-1": "1", "ck/z": "z"}))
        == []
    )
    assert moved == ["ckpt-1", "z", "checkpoint"]
    assert [
        (host.keep / "ck" / name).read_text() for name in ("mine", "checkpoint", "deep/ckpt-1", "z")
    ] == [
        "stays",
        "new",
        "1",
        "z",
    ]
    assert os.listdir(host.keep) == ["ck"]
    assert (host.keep / "ck" / "deep").stat().st_mode & 0o777 == 0o700


def test_a_keep_folder_may_be_on_another_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.keep / "ck").mkdir(parents=True)
    rows = host.send({"ck/checkpoint": "new", "ck/deep/ckpt-1": "1"})

    def rename(source: str, target: str, rename: Callable[[str, str], None] = os.rename) -> None:
        if "incoming" in source and "incoming" not in target:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, rename)
    assert host.list_missing(rows) == []
    assert (host.keep / "ck" / "deep" / "ckpt-1").read_text() == "1"
    assert sorted(os.listdir(host.keep / "ck")) == ["checkpoint", "deep"]
    assert (host.keep / "ck" / "checkpoint").stat().st_mtime_ns == rows[0][2]


def test_what_did_not_come_whole_changes_nothing(host: Host) -> None:
    (host.keep / "ck").mkdir(parents=True)
    (host.keep / "ck" / "checkpoint").write_text("old")
    rows = host.send({"ck/checkpoint": "new", "ck/ckpt-1": "1"})
    for path, size, mtime_ns in (
        (rows[1][0], 2, rows[1][2]),
        (rows[1][0], 1, rows[1][2] + 3 * 10**9),
        ("ck/absent", 1, 1),
    ):
        assert host.list_missing([rows[0], [path, size, mtime_ns]], ("ck/checkpoint",)) == [path]
    assert (host.keep / "ck" / "checkpoint").read_text() == "old"


def test_a_record_that_the_other_host_does_not_have_is_set_aside(host: Host) -> None:
    (host.keep / "ck" / "old").mkdir(parents=True)
    (host.keep / "ck" / "old" / "checkpoint").write_text("stale")
    assert host.list_missing([], ("ck/old/checkpoint", "ck/gone/checkpoint")) == []
    assert os.listdir(host.keep / "ck" / "old") == ["checkpoint.older"]


@pytest.mark.parametrize(
    "path", ["../x", "ck/../../x", "/etc/x", "other/x", "ck", "ck/", "ckx/y", "ck/\0", 7]
)
def test_a_path_that_leads_out_is_refused(host: Host, path: Any) -> None:
    for args in ({"files": [[path, 1, 1]], "aside": []}, {"files": [], "aside": [path]}):
        with pytest.raises(VerbError) as refused:
            host.call("keep.place", keep=["ck"], **args)
        assert refused.value.code == "bad_name"


def test_links_and_folders_in_the_way_are_refused(host: Host, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    host.keep.mkdir(parents=True)
    (host.keep / "ck").symlink_to(tmp_path / "elsewhere")
    for files in ({"ck/x": "1"}, {"ck/deep/x": "1"}):
        with pytest.raises(VerbError) as refused:
            host.list_missing(host.send(files))
        assert refused.value.code == "in_the_way" and "is a link" in refused.value.what
    assert os.listdir(tmp_path / "elsewhere") == []
    (host.keep / "ck").unlink()
    (host.keep / "ck" / "x").mkdir(parents=True)
    with pytest.raises(VerbError, match="is a folder"):
        host.list_missing(host.send({"ck/x": "1"}))


def test_a_link_that_came_is_not_whole_and_a_link_that_is_there_is_replaced(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    rows = host.send({"ck/x": "new"})
    incoming = host.keep / ".tfdeploy-incoming" / "ck"
    (incoming / "link").symlink_to(tmp_path / "secret")
    assert host.list_missing([["ck/link", 6, (tmp_path / "secret").stat().st_mtime_ns]]) == [
        "ck/link"
    ]
    (host.keep / "ck").mkdir()
    (host.keep / "ck" / "x").symlink_to(tmp_path / "secret")
    assert host.list_missing(rows) == []
    assert (host.keep / "ck" / "x").read_text() == "new" and (
        tmp_path / "secret"
    ).read_text() == "secret"


def test_links_are_made_and_what_they_replace_is_not_lost(host: Host) -> None:
    (host.keep / "ck").mkdir(parents=True)
    (host.keep / "ck" / "file").write_text("mine")
    (host.keep / "ck" / "latest").symlink_to("epoch-1")
    links = [
        ["ck/latest", "epoch-2"],
        ["ck/file", "logs/x"],
        ["ck/new/link", "z"],
        ["ck/out", "../x"],
        ["ck/etc", "/etc"],
    ]
    host.call("keep.begin", bytes=0)
    host.call("keep.place", keep=["ck"], files=[], aside=[], links=links)
    made = {
        str(path.relative_to(host.keep)): os.readlink(path)
        for path in host.keep.rglob("*")
        if path.is_symlink()
    }
    assert made == dict(links[:3])
    assert (host.keep / "ck" / "file.older").read_text() == "mine"
    host.call("keep.begin", bytes=0)
    with pytest.raises(VerbError) as refused:
        host.call("keep.place", keep=["ck"], files=[], aside=[], links=[["other/x", "y"]])
    assert refused.value.code == "bad_name"


def test_no_room_is_said_before_anything_comes(host: Host) -> None:
    with pytest.raises(VerbError) as refused:
        host.call("keep.begin", bytes=1 << 60)
    assert refused.value.code == "disk" and refused.value.details["needed_bytes"] == 1 << 60


def test_nothing_is_brought_while_a_run_of_the_job_is_alive(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    cluster.launch(
        "r1", {"worker:0": ("n1", ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"])}
    )
    context = cluster.hosts["n1"].context
    args = {"job": cluster.job, "keep": ["ck"], "files": [], "aside": []}
    with pytest.raises(VerbError, match="run r1 of job digits is alive") as refused:
        find_verb("keep.place")(Call(context, args))
    assert refused.value.code == "live_run"
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    assert find_verb("keep.place")(Call(context, args)) == {"missing": []}
