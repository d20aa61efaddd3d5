"""release.change: a release in one call, from another one or from nothing; all of it or none of it."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from support.agent.release_host import TREE, Host, Tree, rows
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import disk
from tfdeploy.agent.serve import release_change, release_staging
from tfdeploy.model.manifest import Entry
from tfdeploy.tree.read import release_hash

MTIME = 1_600_000_000_123_456_789


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def name_of(tree: Tree) -> str:
    named = ("path", "kind", "size", "sha256", "target")
    return release_hash(Entry(**dict(zip(named, row, strict=True))) for row in rows(tree))


def raw(content: Any) -> bytes:
    found = content[1] if isinstance(content, tuple) else content
    return b"" if isinstance(found, str) else bytes(found)


def change(host: Host, tree: Tree, before: Tree | None = None, *, contents: Tree | None = None, **args: Any) -> Any:
    """`contents`: what is sent in place of what the tree says."""
    old = {row[0]: row for row in rows(before or {})}
    new = [[*row, MTIME] for row in rows(tree) if old.get(row[0]) != row]
    said = {"removed": sorted(old.keys() - tree.keys()), "entries": new}
    text = json.dumps(said).encode() + b"\n" + b"".join(raw({**tree, **(contents or {})}[row[0]]) for row in new)
    given = {"base": name_of(before) if before else "", "bytes": len(text), **args}
    return host.call("release.change", given.pop("release", name_of(tree)), zlib.compress(text), **given)


def test_a_release_from_nothing(host: Host) -> None:
    assert host.call("release.state", name_of(TREE), bases=["a"]) == {"present": False, "base": ""}
    assert change(host, TREE) == {"changed": []}
    assert host.tree(name_of(TREE)) == TREE
    assert host.call("release.state", name_of(TREE)) == {"present": True, "base": None}
    assert sorted(os.listdir(host.releases)) == [name_of(TREE), name_of(TREE) + ".json"]
    umask = os.umask(0o022)
    os.umask(umask)
    found = (host.releases / name_of(TREE) / "run.sh").stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o755 & ~umask, MTIME)


def test_a_release_from_another_one_shares_what_is_the_same(host: Host) -> None:
    change(host, TREE)
    after: Tree = {**TREE, "train.py": b"print(2)\n", "new/a.py": b"a", "latest": "lib/same.py", "run.sh": b"#!/bin/sh\n"}
    del after["-dash"], after["lib/same.py"]
    assert host.call("release.state", name_of(after), bases=["0" * 32, name_of(TREE)])["base"] == name_of(TREE)
    assert change(host, after, TREE) == {"changed": []}
    assert host.tree(name_of(after)) == after and host.tree(name_of(TREE)) == TREE
    old, new = host.releases / name_of(TREE), host.releases / name_of(after)
    assert os.path.samefile(old / "lib/deep/x.py", new / "lib/deep/x.py")
    assert not os.path.samefile(old / "run.sh", new / "run.sh")
    assert host.call("release.state", name_of(after))["present"]
    assert change(host, after, TREE) == {"changed": []}  # it is there: nothing is done


def test_wrong_content_makes_nothing(host: Host) -> None:
    assert change(host, TREE, contents={"lib/deep/x.py": b"y"}) == {"changed": ["lib/deep/x.py"]}
    assert not host.releases.exists()


def no_base(host: Host, *args: Any, **more: Any) -> None:
    before = sorted(os.listdir(host.releases)) if host.releases.exists() else []
    with pytest.raises(VerbError) as error:
        change(host, *args, **more)
    assert error.value.code == "no_base"
    assert sorted(os.listdir(host.releases)) == before


def test_a_base_that_is_spoilt_or_gone_is_none(host: Host) -> None:
    after = {**TREE, "train.py": b"print(2)\n"}
    change(host, TREE)
    (host.releases / name_of(TREE) / "lib/same.py").write_bytes(b"z")
    no_base(host, after, TREE)
    (host.releases / f"{name_of(TREE)}.json").unlink()
    no_base(host, after, TREE)
    assert host.call("release.state", name_of(after), bases=[name_of(TREE)])["base"] is None


def test_a_base_that_is_not_the_sender_s_is_none(host: Host) -> None:
    """The name of a release says all of its content: what is made of another base is never called by it."""
    other = {**TREE, "lib/same.py": b"other"}
    change(host, other)
    no_base(host, {**TREE, "train.py": b"print(2)\n"}, TREE, base=name_of(other))
    no_base(host, {**TREE, "train.py": b"print(3)\n"}, release="f" * 32)


def test_what_an_earlier_sync_left_is_for_begin(host: Host) -> None:
    change(host, TREE)
    after = {**TREE, "train.py": b"print(2)\n"}
    begun = host.begin(name_of(after), after)
    no_base(host, after, TREE)
    host.send(begun, after)
    assert host.commit(name_of(after), begun) == []
    assert host.tree(name_of(after)) == after


def test_a_base_that_goes_while_it_lends_leaves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    change(host, TREE)

    def gone(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "gone")

    monkeypatch.setattr(release_staging, "lend", lambda source, path: False)
    monkeypatch.setattr(os, "link", gone)
    no_base(host, {**TREE, "train.py": b"print(2)\n"}, TREE)


def test_where_hard_links_cannot_be_files_are_copied(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    change(host, TREE)
    after = {**TREE, "train.py": b"print(2)\n"}

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refused)
    assert change(host, after, TREE) == {"changed": []}
    assert host.tree(name_of(after)) == after
    assert (host.releases / name_of(after) / "lib/same.py").stat().st_nlink == 1
    assert host.call("release.state", name_of(after))["present"]


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(release_change, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        change(host, TREE)
    assert os.listdir(host.releases) == []


def test_where_another_host_of_a_shared_workdir_is_first_nothing_is_left(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is first between the two renames."""
    rename = os.rename

    def renamed(source: str, target: str) -> None:
        if ".damaged-" in target:
            os.mkdir(source)
            Path(source, "train.py").write_bytes(b"of the other host")
            raise FileNotFoundError(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    assert change(host, TREE) == {"changed": []}
    assert sorted(os.listdir(host.releases)) == [name_of(TREE), name_of(TREE) + ".json"]
    assert (host.releases / name_of(TREE) / "train.py").read_bytes() == b"of the other host"


def test_no_room_is_said_before_anything_is_made(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free_space", lambda path: disk.FreeSpace(3, 1000))
    with pytest.raises(VerbError) as error:
        change(host, TREE)
    assert error.value.code == "disk" and os.listdir(host.releases) == []


def test_what_was_received_is_flushed_before_it_gets_its_name(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(release_change, "flush", lambda root, paths: flushed.extend(sorted(paths)))
    monkeypatch.setattr(release_change, "switch", lambda *_: flushed.append("switched"))
    change(host, {"a": b"1", "b": b"2"})
    assert flushed == ["a", "b", "switched"]


@pytest.mark.parametrize("path", ["../r0/train.py", "/etc/motd", "lib/../../x", "a//b", ".", "a\0b"])
def test_no_path_leads_out(host: Host, path: str) -> None:
    with pytest.raises(VerbError) as error:
        change(host, {path: b"x"})
    assert error.value.code == "bad_manifest" and not host.releases.exists()


def test_no_path_leads_through_another_one(host: Host) -> None:
    change(host, {"a": "/etc", "b": b"1"})
    with pytest.raises(VerbError) as error:
        change(host, {"a": "/etc", "b": b"1", "a/passwd": b"x"}, {"a": "/etc", "b": b"1"})
    assert error.value.code == "bad_manifest"


GOOD = json.dumps({"removed": [], "entries": [["a", "file", 1, hashlib.sha256(b"1").hexdigest(), "", 1]]}).encode()


@pytest.mark.parametrize(
    ("text", "announced"),
    [
        (GOOD + b"\n1", 5),
        (GOOD + b"\n1", 1 << 40),
        (GOOD + b"\n12", None),
        (GOOD + b"\n", None),
        (GOOD, None),
        (b"[]\n", None),
        (b'{"removed": [], "entries": [["a", "file", 1, "x", ""]]}\n1', None),
        (GOOD.replace(b", 1]]", b', "1"]]') + b"\n1", None),
        (GOOD.replace(b'"a", "file", 1', b'"a", "file", -1') + b"\n", None),
    ],
)
def test_a_change_that_is_not_what_it_says_writes_nothing(host: Host, text: bytes, announced: int | None) -> None:
    with pytest.raises(VerbError) as error:
        host.call("release.change", "r1", zlib.compress(text), base="", bytes=announced or len(text))
    assert error.value.code == "bad_manifest" and not host.releases.exists()


def test_one_that_is_cut_off_writes_nothing(host: Host) -> None:
    with pytest.raises(VerbError) as error:
        host.call("release.change", "r1", zlib.compress(GOOD + b"\n1")[:-6], base="", bytes=len(GOOD) + 2)
    assert error.value.code == "bad_manifest"
