"""Test releases (the code of a job) on a host: which files the host requests, which files it takes
from an older release by a hard link, and what it refuses.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from support.agent.release_host import TREE, Host, Tree, rows
from tfdeploy.agent import layout
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import disk


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_release_arrives_whole(host: Host) -> None:
    assert host.call("release.state", "r1")["present"] is False
    begun = host.sync("r1", TREE)
    assert sorted(begun["missing"]) == sorted(
        path for path, content in TREE.items() if not isinstance(content, str)
    )
    assert host.tree("r1") == TREE
    assert host.call("release.state", "r1") == {"present": True}
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]
    umask = os.umask(0o022)
    os.umask(umask)
    assert (host.releases / "r1" / "run.sh").stat().st_mode & 0o777 == 0o755 & ~umask


def test_equal_content_is_lent_wherever_it_lay(host: Host) -> None:
    host.sync("r1", TREE)
    changed: Tree = dict(
        TREE,
        **{
            "moved/y.py": TREE["train.py"],
            "train.py": b"print(2)\n",
            "lib/same.py": ("exec", b"x"),
        },
    )
    begun = host.sync("r2", changed)
    assert sorted(begun["missing"]) == ["lib/same.py", "train.py"]
    assert host.tree("r2") == changed and host.tree("r1") == TREE
    assert os.path.samefile(
        host.releases / "r1" / "train.py", host.releases / "r2" / "moved" / "y.py"
    )
    assert (host.releases / "r1" / "lib" / "same.py").stat().st_mode & 0o111 == 0


def test_an_interrupted_sync_goes_on(host: Host) -> None:
    begun = host.begin("r1", TREE)
    host.send(begun, TREE, but="train.py")
    (Path(begun["staging"]) / ".train.py.Ab12Cd").write_bytes(b"half")
    partial = Path(begun["staging"]) / "lib" / layout.PARTIAL / "x.py"
    partial.parent.mkdir()
    partial.write_bytes(b"half")
    again = host.begin("r1", TREE)
    assert again["missing"] == ["train.py"] and partial.exists()
    assert (Path(begun["staging"]) / layout.PARTIAL / "train.py").read_bytes() == b"half"
    assert not (Path(begun["staging"]) / ".train.py.Ab12Cd").exists()
    # If there are two partial files of train.py, the longer one is kept, to be resumed.
    for written, kept in ((b"ha", b"half"), (b"half and more", b"half and more")):
        (Path(begun["staging"]) / ".train.py.x1Y2z3").write_bytes(written)
        again = host.begin("r1", TREE)
        assert (Path(begun["staging"]) / layout.PARTIAL / "train.py").read_bytes() == kept
    assert not (Path(begun["staging"]) / ".train.py.x1Y2z3").exists()
    assert host.commit("r1", again) == ["train.py"] and not (host.releases / "r1").exists()
    host.send(again, TREE)
    assert host.commit("r1", again) == [] and host.tree("r1") == TREE


def test_a_staging_of_code_that_has_changed_since_is_taken_over(host: Host) -> None:
    host.sync("0", {"lent.py": b"lent", "other.py": b"other"})
    first = {"lent.py": b"lent", "same.py": b"same", "new.py": b"1"}
    begun = host.begin("a", first)
    host.send(begun, first)
    second = {"lent.py": ("exec", b"lent"), "same.py": b"same", "new.py": b"22"}
    begun = host.begin("b", second)
    assert begun["missing"] == ["lent.py", "new.py"]
    # The test removes the file and creates it again, as rsync does. So the content of the older
    # release, which shares the file by a hard link, stays the same.
    for path in begun["missing"]:
        Path(begun["staging"], path).unlink(missing_ok=True)
    host.send(begun, second)
    assert host.commit("b", begun) == []
    assert host.tree("b") == second
    assert host.tree("0") == {"lent.py": b"lent", "other.py": b"other"}
    assert [path.name for path in host.releases.iterdir() if path.name.startswith(".")] == []


def test_a_release_that_another_host_made_meanwhile_is_success(host: Host) -> None:
    begun = host.begin("r1", TREE)
    host.send(begun, TREE)
    shutil.copytree(begun["staging"], str(host.releases / "r1"), symlinks=True)
    assert host.commit("r1", begun) == []
    assert not os.path.exists(begun["staging"]) and host.call("release.state", "r1")["present"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "a//b", ".", "", "a/.", "nul\0"]
)
def test_paths_that_lead_out_are_refused(host: Host, path: str) -> None:
    with pytest.raises(VerbError) as caught:
        host.begin("r1", [[path, "file", 1, "0" * 64, ""]])
    assert caught.value.code == "bad_manifest"


@pytest.mark.parametrize(
    "manifest",
    [
        [["a", "link", 0, "", "/etc"], ["a/passwd", "file", 1, "0" * 64, ""]],
        [["a", "file", 1, "0" * 64, ""], ["a", "file", 1, "0" * 64, ""]],
        [["a", "device", 1, "0" * 64, ""]],
        [["a", "file", -1, "0" * 64, ""]],
        [["a", "file", 1, "short", ""]],
        [["a", "file", 1]],
        {"a": 1},
        7,
    ],
)
def test_bad_manifests_are_refused(host: Host, manifest: Any) -> None:
    packed = zlib.compress(json.dumps(manifest).encode())
    for blob in (packed, packed[:-3], b"garbage", b""):
        with pytest.raises(VerbError) as caught:
            host.call("release.begin", "r1", blob)
        assert caught.value.code == "bad_manifest"


@pytest.mark.parametrize("path", ["/", "/tmp", "", None, "../../x"])
def test_only_our_own_staging_is_ever_committed(host: Host, path: str | None) -> None:
    host.sync("r1", TREE)
    for given in (path, str(host.releases / "r1"), str(host.releases / ".staging-x" / ".." / "r1")):
        with pytest.raises(VerbError) as caught:
            host.call("release.commit", "r2", staging=given)
        assert caught.value.code == "bad_name"
    assert host.tree("r1") == TREE
    elsewhere = host.releases.parent / ".staging-x"
    elsewhere.mkdir()
    with pytest.raises(VerbError):
        host.call("release.commit", "r2", staging=str(elsewhere))
    assert elsewhere.exists()


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "symlink", full)
    with pytest.raises(OSError):
        host.begin("r1", TREE)
    assert os.listdir(host.releases) == []


def test_no_room_is_said_before_anything_is_made(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_space", lambda path: disk.FreeSpace(5, None))
    with pytest.raises(VerbError) as caught:
        host.begin("r1", TREE)
    assert caught.value.code == "disk" and caught.value.details["free_bytes"] == 5
    assert caught.value.details["needed_bytes"] == sum(row[2] for row in rows(TREE))
    assert os.listdir(host.releases) == []
    monkeypatch.setattr(disk, "free_space", lambda path: disk.FreeSpace(1 << 30, 2))
    with pytest.raises(VerbError, match="inodes"):
        host.begin("r1", TREE)


# If the disk is full, rsync leaves a partial file at one of these two paths.
@pytest.mark.parametrize("name", [f"{layout.PARTIAL}/a.bin", "a.bin"])
def test_halves_of_files_go_where_they_take_the_room_of_the_whole(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content = os.urandom(1000)
    partial = Path(host.begin("r1", {"a.bin": content})["staging"], name)
    partial.parent.mkdir(exist_ok=True)
    partial.write_bytes(content[:600])
    host.begin("r1", {"a.bin": content})
    assert partial.exists()
    monkeypatch.setattr(
        disk, "free_space", lambda path: disk.FreeSpace(500 if partial.exists() else 1100, None)
    )
    assert host.begin("r1", {"a.bin": content})["missing"] == ["a.bin"] and not partial.exists()
    monkeypatch.setattr(disk, "free_space", lambda path: disk.FreeSpace(500, None))
    with pytest.raises(VerbError, match="1000 bytes more, but only 500 are free"):
        host.begin("r1", {"a.bin": content})


def test_where_hard_links_cannot_be_files_are_copied(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    host.sync("r1", TREE)
    monkeypatch.setattr(os, "link", refuse)
    assert host.sync("r2", TREE)["missing"] == []
    assert host.tree("r2") == TREE and not os.path.samefile(
        host.releases / "r1" / "run.sh", host.releases / "r2" / "run.sh"
    )
