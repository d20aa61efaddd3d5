"""Releases on a host: what is asked for, what is lent, what is refused, what is left."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import layout, wire
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.ownership import NotOurs
from tfdeploy.agent.serve import release as serve_release
from tfdeploy.agent.serve import release_retention
from tfdeploy.agent.serve.call import Call, Context
from tfdeploy.agent.serve.dispatch import find_verb

Tree = Any  # {path: content}; content is bytes: a file; ("exec", bytes); a text: a link


def rows(tree: Tree) -> list[Any]:
    found: list[Any] = []
    for path, content in sorted(tree.items()):
        if isinstance(content, str):
            found.append([path, "link", 0, "", content])
        else:
            kind, raw = content if isinstance(content, tuple) else ("file", content)
            found.append([path, kind, len(raw), hashlib.sha256(raw).hexdigest(), ""])
    return found


class Host:
    def __init__(self, workdir: Path) -> None:
        self.context = Context(str(workdir), "")
        self.releases = workdir / "job" / "releases"

    def call(self, verb: str, release: str, blob: bytes = b"", **args: Any) -> Any:
        return find_verb(verb)(Call(self.context, dict(args, job="job", release=release), blob))

    def begin(self, release: str, tree: Any) -> Any:
        manifest = rows(tree) if isinstance(tree, dict) else tree
        return self.call("release.begin", release, zlib.compress(json.dumps(manifest).encode()))

    def send(self, begun: Any, tree: Tree, but: str = "") -> None:
        for path in begun["missing"]:
            content = tree[path]
            if path != but:
                raw = content[1] if isinstance(content, tuple) else content
                assert isinstance(raw, bytes)
                (Path(begun["staging"]) / path).write_bytes(raw)

    def commit(self, release: str, begun: Any, **args: Any) -> list[str]:
        changed: list[str] = self.call("release.commit", release, staging=begun["staging"], **args)["changed"]
        return changed

    def sync(self, release: str, tree: Tree, **args: Any) -> Any:
        begun = self.begin(release, tree)
        self.send(begun, tree)
        assert self.commit(release, begun, **args) == []
        return begun

    def tree(self, release: str) -> Tree:
        found: Tree = {}
        root = self.releases / release
        for base, folders, names in os.walk(root):
            for name in names + [folder for folder in folders if os.path.islink(os.path.join(base, folder))]:
                path = Path(base) / name
                key = str(path.relative_to(root))
                if path.is_symlink():
                    found[key] = os.readlink(path)
                else:
                    raw = path.read_bytes()
                    found[key] = ("exec", raw) if os.access(path, os.X_OK) else raw
        return found


TREE: Tree = {
    "train.py": b"print(1)\n",
    "run.sh": ("exec", b"#!/bin/sh\n"),
    "lib/deep/x.py": b"x",
    "lib/same.py": b"x",
    "latest": "lib/deep/x.py",
    "folder": "lib",
    "b\udcff \U0001f600\n'\"-": b"odd",
    "-dash": b"",
}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_release_arrives_whole(host: Host) -> None:
    assert host.call("release.state", "r1") == {"present": False}
    begun = host.sync("r1", TREE)
    assert sorted(begun["missing"]) == sorted(path for path, content in TREE.items() if not isinstance(content, str))
    assert host.tree("r1") == TREE
    assert host.call("release.state", "r1") == {"present": True}
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]
    umask = os.umask(0o022)
    os.umask(umask)
    assert (host.releases / "r1" / "run.sh").stat().st_mode & 0o777 == 0o755 & ~umask


def test_equal_content_is_lent_wherever_it_lay(host: Host) -> None:
    host.sync("r1", TREE)
    changed: Tree = dict(TREE, **{"moved/y.py": TREE["train.py"], "train.py": b"print(2)\n", "lib/same.py": ("exec", b"x")})
    begun = host.sync("r2", changed)
    assert sorted(begun["missing"]) == ["lib/same.py", "train.py"]
    assert host.tree("r2") == changed and host.tree("r1") == TREE
    assert os.path.samefile(host.releases / "r1" / "train.py", host.releases / "r2" / "moved" / "y.py")
    assert (host.releases / "r1" / "lib" / "same.py").stat().st_mode & 0o111 == 0


def test_a_file_spoilt_on_the_host_is_not_lent(host: Host) -> None:
    host.sync("r1", TREE)
    spoilt = host.releases / "r1" / "train.py"
    spoilt.write_bytes(b"print(0)\n")
    os.utime(spoilt, (1, 1))
    assert host.begin("r2", TREE)["missing"] == ["train.py"]


def test_an_interrupted_sync_goes_on(host: Host) -> None:
    begun = host.begin("r1", TREE)
    host.send(begun, TREE, but="train.py")
    (Path(begun["staging"]) / ".train.py.Ab12Cd").write_bytes(b"half")
    half = Path(begun["staging"]) / "lib" / layout.PARTIAL / "x.py"
    half.parent.mkdir()
    half.write_bytes(b"half")
    again = host.begin("r1", TREE)
    assert again["missing"] == ["train.py"] and half.exists()
    assert (Path(begun["staging"]) / layout.PARTIAL / "train.py").read_bytes() == b"half"
    assert not (Path(begun["staging"]) / ".train.py.Ab12Cd").exists()
    for written, kept in ((b"ha", b"half"), (b"half and more", b"half and more")):  # the longer one is where it goes on
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
    for path in begun["missing"]:  # as rsync does: a new file under the old name
        os.unlink(Path(begun["staging"], path))
    host.send(begun, second)
    assert host.commit("b", begun) == []
    assert host.tree("b") == second
    assert host.tree("0") == {"lent.py": b"lent", "other.py": b"other"}
    assert [path.name for path in host.releases.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("spoil", ["content", "size", "gone", "link"])
def test_what_is_not_what_the_manifest_says_is_asked_for_again(host: Host, spoil: str) -> None:
    begun = host.begin("r1", TREE)
    host.send(begun, TREE)
    path = Path(begun["staging"]) / "train.py"
    path.unlink()
    if spoil == "link":
        (path.parent / "other").write_bytes(b"print(1)\n")
        path.symlink_to("other")
    elif spoil != "gone":
        path.write_bytes(b"print(9)\n" if spoil == "content" else b"")
    assert host.commit("r1", begun) == ["train.py"]
    assert host.call("release.state", "r1") == {"present": False}


def test_a_release_that_another_host_made_meanwhile_is_success(host: Host) -> None:
    begun = host.begin("r1", TREE)
    host.send(begun, TREE)
    shutil.copytree(begun["staging"], str(host.releases / "r1"), symlinks=True)
    assert host.commit("r1", begun) == []
    assert not os.path.exists(begun["staging"]) and host.call("release.state", "r1")["present"]


def test_abort_leaves_nothing(host: Host) -> None:
    begun = host.begin("r1", TREE)
    host.call("release.abort", "r1", staging=begun["staging"])
    assert os.listdir(host.releases) == []


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", ".", "", "a/.", "nul\0"])
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
def test_only_our_own_staging_is_ever_removed(host: Host, path: str | None) -> None:
    host.sync("r1", TREE)
    for given in (path, str(host.releases / "r1"), str(host.releases / ".staging-x" / ".." / "r1")):
        with pytest.raises(VerbError) as caught:
            host.call("release.abort", "r1", staging=given)
        assert caught.value.code == "bad_name"
    assert host.tree("r1") == TREE
    elsewhere = host.releases.parent / ".staging-x"
    elsewhere.mkdir()
    with pytest.raises(VerbError):
        host.call("release.abort", "r1", staging=str(elsewhere))
    assert elsewhere.exists()


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "symlink", full)
    with pytest.raises(OSError):
        host.begin("r1", TREE)
    assert os.listdir(host.releases) == []


def test_no_room_is_said_before_anything_is_made(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_release, "free_of", lambda path: {"free_bytes": 5, "free_inodes": None})
    with pytest.raises(VerbError) as caught:
        host.begin("r1", TREE)
    assert caught.value.code == "disk" and caught.value.details["free_bytes"] == 5
    assert caught.value.details["needed_bytes"] == sum(row[2] for row in rows(TREE))
    assert os.listdir(host.releases) == []
    monkeypatch.setattr(serve_release, "free_of", lambda path: {"free_bytes": 1 << 30, "free_inodes": 2})
    with pytest.raises(VerbError, match="inodes"):
        host.begin("r1", TREE)


@pytest.mark.parametrize("name", [f"{layout.PARTIAL}/a.bin", "a.bin"])  # rsync leaves it there on a disk that is full
def test_halves_of_files_go_where_they_take_the_room_of_the_whole(host: Host, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    content = os.urandom(1000)
    half = Path(host.begin("r1", {"a.bin": content})["staging"], name)
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(content[:600])
    host.begin("r1", {"a.bin": content})
    assert half.exists()
    monkeypatch.setattr(
        serve_release, "free_of", lambda path: {"free_bytes": 500 if half.exists() else 1100, "free_inodes": None}
    )
    assert host.begin("r1", {"a.bin": content})["missing"] == ["a.bin"] and not half.exists()
    monkeypatch.setattr(serve_release, "free_of", lambda path: {"free_bytes": 500, "free_inodes": None})
    with pytest.raises(VerbError, match="1000 bytes more, and 500 are free"):
        host.begin("r1", {"a.bin": content})


def test_where_hard_links_cannot_be_files_are_copied(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    host.sync("r1", TREE)
    monkeypatch.setattr(os, "link", refuse)
    assert host.sync("r2", TREE)["missing"] == []
    assert host.tree("r2") == TREE and not os.path.samefile(host.releases / "r1" / "run.sh", host.releases / "r2" / "run.sh")


def part_of_a_run(host: Host, run: str, release: str, phase: str) -> None:
    folder = Path(layout.host_dir(host.context.workdir, "job", run, "n1"))
    folder.mkdir(parents=True)
    part = wire.HostPart(run, "job", "async", "n1", "d", release)
    (folder / "part.json").write_text(json.dumps(wire.to_wire(part)))
    (folder / "state.json").write_text(json.dumps(wire.to_wire(wire.HostRunState(run, "job", "n1", phase=phase))))


def test_old_releases_go_but_not_those_in_use(host: Host) -> None:
    for number in range(6):
        host.sync(f"r{number}", {"a": b"%d" % number}, keep_releases=10)
        os.utime(host.releases / f"r{number}", (number, number))
        os.utime(host.releases / f"r{number}.json", (number, number))
    part_of_a_run(host, "live", "r0", "committed")
    part_of_a_run(host, "over", "r1", "ended")
    stale = host.begin("r8", {"a": b"8"})["staging"]
    other = str(host.releases / ".staging-elsewhere-r8")
    for end in ("", ".json"):
        os.rename(stale + end, other + end)
    fresh = host.begin("r9", {"a": b"9"})["staging"]
    for path in (other, other + ".json"):
        os.utime(path, (1, time.time() - release_retention.STALE_S - 1))
    os.rename(fresh, fresh.replace("-r9", "-elsewhere-r9"))
    host.sync("r7", {"a": b"7"}, keep_releases=3)
    left = {name for name in os.listdir(host.releases) if not name.endswith(".json")}
    assert left == {"r0", "r4", "r5", "r7", os.path.basename(fresh).replace("-r9", "-elsewhere-r9")}


def rewritten(path: Path) -> None:
    """Other content of the same size, at another time."""
    path.write_bytes(bytes(len(path.read_bytes())))
    os.utime(path, ns=(1, 1))


DAMAGES: dict[str, Any] = {
    "60 emptied": lambda root: (root / "train.py").write_bytes(b""),
    "60 edited": lambda root: (root / "lib/deep/x.py").write_bytes(b"print('other code')"),
    "60 edited, of the same size": lambda root: rewritten(root / "train.py"),
    "60 gone": lambda root: (root / "train.py").unlink(),
    "60 a file more": lambda root: (root / "json.py").write_bytes(b"raise SystemExit"),
    "60 no longer executable": lambda root: (root / "run.sh").chmod(0o600),
    "60 a link to elsewhere": lambda root: ((root / "latest").unlink(), (root / "latest").symlink_to("/etc/passwd")),
    "60 a link in place of a file": lambda root: ((root / "train.py").unlink(), (root / "train.py").symlink_to("/etc/passwd")),
    "60 a fifo in place of a file": lambda root: ((root / "train.py").unlink(), os.mkfifo(root / "train.py", 0o600)),
    "60 its folder gone": shutil.rmtree,
}


@pytest.mark.parametrize("damage", [pytest.param(how, id=name, marks=pytest.mark.fault(name)) for name, how in DAMAGES.items()])
def test_a_damaged_release_is_noticed_and_mended(host: Host, damage: Any) -> None:
    host.sync("r1", TREE)
    before = (host.releases / "r1/lib/same.py").stat().st_ino
    damage(host.releases / "r1")
    assert host.call("release.state", "r1") == {"present": False}
    begun = host.sync("r1", TREE)
    assert len(begun["missing"]) <= 1 or damage is shutil.rmtree  # the rest is still there
    assert host.tree("r1") == TREE and host.call("release.state", "r1") == {"present": True}
    assert damage is shutil.rmtree or (host.releases / "r1/lib/same.py").stat().st_ino == before
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]


def test_new_times_alone_damage_nothing_and_are_looked_at_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.sync("r1", TREE)
    for path in ("train.py", "run.sh"):
        os.utime(host.releases / "r1" / path, ns=(5, 5))
    assert host.call("release.state", "r1") == {"present": True}
    monkeypatch.setattr(
        "tfdeploy.agent.serve.release_staging.content_of", lambda path, size: None
    )  # from now on it would be damaged
    assert host.call("release.state", "r1") == {"present": True}


@pytest.mark.fault("60 a release that others may write to")
def test_a_release_that_others_may_write_to_is_refused(host: Host) -> None:
    host.sync("r1", TREE)
    (host.releases / "r1" / "lib").chmod(0o777)
    with pytest.raises(NotOurs, match="lib may be written to by others") as caught:
        host.call("release.state", "r1")
    assert caught.value.next == f"chmod go-w {host.releases}/r1/lib"
    (host.releases / "r1" / "lib").chmod(0o700)
    (host.releases / "r1" / "train.py").chmod(0o666)
    with pytest.raises(NotOurs, match=r"train\.py may be written to by others"):
        host.call("release.state", "r1")


def test_what_was_received_is_flushed_before_it_gets_its_name(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: done.append(os.readlink(f"/proc/self/fd/{fd}")))
    rename = os.rename

    def renamed(source: Any, target: Any) -> None:
        rename(source, target)
        done.append(f"renamed {target}")

    monkeypatch.setattr(os, "rename", renamed)
    begun = host.sync("r1", TREE)
    switched = done.index(f"renamed {host.releases}/r1")
    assert {f"{begun['staging']}/{path}" for path in begun["missing"]} <= set(done[:switched])
    assert str(host.releases) in done[switched:]
