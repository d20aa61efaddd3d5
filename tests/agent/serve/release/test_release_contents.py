"""Test the verb that commits a release (the code of a job). Its call also carries the contents of
small files: all of these files are written, or none of them.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from support.agent.release_host import TREE, Host, Tree
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.release import verbs as release_verbs

MTIME = 1_600_000_000_123_456_789


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def raw(content: Any) -> bytes:
    packed = content[1] if isinstance(content, tuple) else content
    return b"" if isinstance(packed, str) else bytes(packed)


def commit(host: Host, name: str, begun: Any, blob: bytes) -> Any:
    return host.call("release.commit", name, blob, staging=begun["staging"])


def deliver(host: Host, name: str, tree: Tree) -> Any:
    begun = host.begin(name, tree)
    contents = b"".join(raw(tree[path]) for path in begun["missing"])
    times = json.dumps([MTIME] * len(begun["missing"])).encode()
    return commit(host, name, begun, zlib.compress(times + b"\n" + contents))


def test_a_release_from_nothing(host: Host) -> None:
    assert deliver(host, "r1", TREE) == {"changed": []}
    assert host.tree("r1") == TREE
    assert host.call("release.state", "r1") == {"present": True}
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]
    umask = os.umask(0o022)
    os.umask(umask)
    script_stat = (host.releases / "r1" / "run.sh").stat()
    assert (script_stat.st_mode & 0o777, script_stat.st_mtime_ns) == (0o755 & ~umask, MTIME)


def test_a_release_beside_another_one_shares_what_is_the_same(host: Host) -> None:
    deliver(host, "r1", TREE)
    changed = {"train.py": b"print(2)\n", "new/a.py": b"a", "latest": "lib/same.py"}
    after: Tree = {**TREE, **changed, "run.sh": b"#!/bin/sh\n"}
    del after["-dash"], after["lib/same.py"]
    assert deliver(host, "r2", after) == {"changed": []}
    assert host.tree("r2") == after and host.tree("r1") == TREE
    old, new = host.releases / "r1", host.releases / "r2"
    assert os.path.samefile(old / "lib/deep/x.py", new / "lib/deep/x.py")
    assert not os.path.samefile(old / "run.sh", new / "run.sh")
    assert host.call("release.state", "r2")["present"]


def test_what_has_the_name_already_is_replaced_and_never_written_into(host: Host) -> None:
    begun = host.begin("r1", {"train.py": b"1"})
    older = host.releases / "older.py"
    older.write_bytes(b"of an older release")
    os.link(older, Path(begun["staging"], "train.py"))
    assert commit(host, "r1", begun, zlib.compress(b"[1]\n1")) == {"changed": []}
    assert older.read_bytes() == b"of an older release"


def test_a_shared_file_at_a_missing_path_is_removed_first(host: Host) -> None:
    """The staging folder contains a hard link to a file of an older release, and the new release
    needs this file with another mode. The hard link is removed before the file is sent. Otherwise
    rsync would also change the file's mode in the older release.
    """
    deliver(host, "r1", TREE)
    begun = host.begin("r2", TREE)
    after = {**TREE, "lib/same.py": ("exec", b"x")}
    os.rename(begun["staging"], host.releases / ".staging-here")
    begun = host.begin("r2", after)
    os.link(host.releases / "r1/lib/same.py", Path(begun["staging"], "lib/same.py"))
    again = host.begin("r2", after)
    assert again["missing"] == ["lib/same.py"]
    assert not Path(again["staging"], "lib/same.py").exists()


def test_a_lender_that_goes_meanwhile_is_missing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(host, "r1", TREE)

    def gone(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "gone")

    monkeypatch.setattr(os, "link", gone)
    after = {**TREE, "train.py": b"print(2)\n"}
    begun = host.begin("r2", after)
    files = [path for path, content in TREE.items() if not isinstance(content, str)]
    assert sorted(begun["missing"]) == sorted(files) and begun["linked"] == 0
    assert deliver(host, "r2", after) == {"changed": []} and host.tree("r2") == after


def test_what_is_missing_is_told_without_a_change(host: Host) -> None:
    after = {**TREE, "train.py": b"print(2)\n"}
    assert sorted(host.missing("r1", {"a": b"1", "b": b""})) == ["a", "b"]
    assert not host.releases.exists()
    deliver(host, "r1", TREE)
    assert host.missing("r2", after) == ["train.py"]
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]


def test_a_disk_that_fills_up_on_the_way_is_gone_on_with(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as on_full_disk:
        on_full_disk.setattr(release_verbs, "write_all", full)
        with pytest.raises(OSError, match="No space"):
            deliver(host, "r1", TREE)
    assert not (host.releases / "r1").exists()
    assert deliver(host, "r1", TREE) == {"changed": []} and host.tree("r1") == TREE


def test_where_another_host_of_a_shared_workdir_is_first_nothing_is_left(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host that shares the workdir installs the same release between two renames of this
    host. The release of the other host must stay, and nothing else may be left.
    """
    rename = os.rename

    def renamed(source: str, target: str) -> None:
        if ".damaged-" in target:
            os.mkdir(source)
            Path(source, "train.py").write_bytes(b"of the other host")
            raise FileNotFoundError(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    assert deliver(host, "r1", TREE) == {"changed": []}
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]
    assert (host.releases / "r1/train.py").read_bytes() == b"of the other host"


@pytest.mark.parametrize(
    "blob",
    [
        b"no zlib",
        zlib.compress(b"[1, 1]\n1"),
        zlib.compress(b"[1, 1]\n123"),
        zlib.compress(b"[1, 1]\n" + bytes(1 << 20)),
        zlib.compress(b"[1, 1]"),
        zlib.compress(b"[1]\n12"),
        zlib.compress(b'[1, "1"]\n12'),
        zlib.compress(b"{}\n12"),
        zlib.compress(b"[1, 1]\n12")[:-6],
    ],
)
def test_contents_that_are_not_what_was_asked_for_write_nothing(host: Host, blob: bytes) -> None:
    begun = host.begin("r1", {"a": b"1", "b": b"2"})
    with pytest.raises(VerbError) as error:
        commit(host, "r1", begun, blob)
    assert error.value.code == "bad_manifest" and os.listdir(begun["staging"]) == []


def test_no_path_leads_through_another_one(host: Host) -> None:
    with pytest.raises(VerbError) as error:
        host.begin("r1", {"a": "/etc", "a/passwd": b"x"})
    assert error.value.code == "bad_manifest"
