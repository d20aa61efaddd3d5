"""Test that a damaged release (the code of a job) is detected and repaired, and that a release to
which other accounts may write is refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agent.release_host import TREE, Host
from tfdeploy.agent.host import fsync
from tfdeploy.agent.ownership import UntrustedPath, explain
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.model.answers.failures import format_advice


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_file_spoilt_on_the_host_is_not_lent(host: Host) -> None:
    host.sync("r1", TREE)
    spoilt = host.releases / "r1" / "train.py"
    spoilt.write_bytes(b"print(0)\n")
    os.utime(spoilt, (1, 1))
    assert host.begin("r2", TREE)["missing"] == ["train.py"]


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that simulates a power cut: after a call, the host has another boot id."""
    return lambda: monkeypatch.setattr(release_store, "boot_id", lambda: "another boot")


def tear(path: Path) -> None:
    """Replace the content of the file by zeros, as a power cut can. Its size and time stay."""
    times = path.stat()
    path.write_bytes(bytes(times.st_size))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_torn_by_a_power_cut_is_received_again(
    host: Host, power_cut: Callable[[], None]
) -> None:
    host.sync("r1", TREE)
    tear(host.releases / "r1" / "train.py")
    power_cut()
    assert host.call("release.state", "r1")["present"] is False
    assert host.sync("r1", TREE)["missing"] == ["train.py"]
    assert host.tree("r1") == TREE


def test_a_torn_file_is_not_linked_into_another_release(
    host: Host, power_cut: Callable[[], None]
) -> None:
    host.sync("r1", TREE)
    tear(host.releases / "r1" / "train.py")
    power_cut()
    assert host.begin("r2", TREE)["missing"] == ["train.py"]


def test_after_a_power_cut_contents_are_compared_and_flushed_once(
    host: Host, power_cut: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(fsync, "flush_files", lambda root, paths: flushed.extend(paths))
    host.sync("r1", TREE)
    power_cut()
    assert host.call("release.state", "r1")["present"] is True
    assert sorted(flushed) == sorted(path for path in TREE if not isinstance(TREE[path], str))
    tear(host.releases / "r1" / "train.py")
    assert host.call("release.state", "r1")["present"] is True


@pytest.mark.parametrize("spoil", ["size", "gone", "link"])
def test_what_is_not_what_the_manifest_says_is_asked_for_again(host: Host, spoil: str) -> None:
    begun = host.begin("r1", TREE)
    host.send(begun, TREE)
    path = Path(begun["staging"]) / "train.py"
    path.unlink()
    if spoil == "link":
        (path.parent / "other").write_bytes(b"print(1)\n")
        path.symlink_to("other")
    elif spoil != "gone":
        path.write_bytes(b"")
    assert host.commit("r1", begun) == ["train.py"]
    assert host.call("release.state", "r1")["present"] is False


def test_what_a_broken_sync_left_counts_by_its_content(host: Host) -> None:
    """After a power cut, a received file may have the right size but the wrong content."""
    begun = host.begin("r1", TREE)
    host.send(begun, TREE)
    (Path(begun["staging"]) / "train.py").write_bytes(b"print(9)\n")
    again = host.begin("r1", TREE)
    assert again["missing"] == ["train.py"]
    host.send(again, TREE)
    assert host.commit("r1", again) == [] and host.tree("r1") == TREE


def rewritten(path: Path) -> None:
    """Replace the content of the file by zeros, and change its time. The size stays the same."""
    path.write_bytes(bytes(len(path.read_bytes())))
    os.utime(path, ns=(1, 1))


DAMAGES: dict[str, Any] = {
    "60 emptied": lambda root: (root / "train.py").write_bytes(b""),
    "60 edited": lambda root: (root / "lib/deep/x.py").write_bytes(b"print('other code')"),
    "60 edited, of the same size": lambda root: rewritten(root / "train.py"),
    "60 gone": lambda root: (root / "train.py").unlink(),
    "60 a file more": lambda root: (root / "json.py").write_bytes(b"raise SystemExit"),
    "60 no longer executable": lambda root: (root / "run.sh").chmod(0o600),
    "60 a link to elsewhere": lambda root: (
        (root / "latest").unlink(),
        (root / "latest").symlink_to("/etc/passwd"),
    ),
    "60 a link in place of a file": lambda root: (
        (root / "train.py").unlink(),
        (root / "train.py").symlink_to("/etc/passwd"),
    ),
    "60 a fifo in place of a file": lambda root: (
        (root / "train.py").unlink(),
        os.mkfifo(root / "train.py", 0o600),
    ),
    "60 its folder gone": shutil.rmtree,
}


@pytest.mark.parametrize(
    "damage",
    [pytest.param(how, id=name, marks=pytest.mark.fault(name)) for name, how in DAMAGES.items()],
)
def test_a_damaged_release_is_noticed_and_mended(host: Host, damage: Any) -> None:
    host.sync("r1", TREE)
    before = (host.releases / "r1/lib/same.py").stat().st_ino
    damage(host.releases / "r1")
    assert host.call("release.state", "r1")["present"] is False
    begun = host.sync("r1", TREE)
    # Only the damaged file is sent again, unless the whole release was removed.
    assert len(begun["missing"]) <= 1 or damage is shutil.rmtree
    assert host.tree("r1") == TREE and host.call("release.state", "r1") == {"present": True}
    assert damage is shutil.rmtree or (host.releases / "r1/lib/same.py").stat().st_ino == before
    assert sorted(os.listdir(host.releases)) == ["r1", "r1.json"]


def test_new_times_alone_damage_nothing_and_are_looked_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.sync("r1", TREE)
    for path in ("train.py", "run.sh"):
        os.utime(host.releases / "r1" / path, ns=(5, 5))
    assert host.call("release.state", "r1") == {"present": True}
    monkeypatch.setattr(
        "tfdeploy.agent.serve.release.store.hash_first_bytes",
        lambda path, size, whole: None,
        # With this hash, each file that is read again would count as damaged.
    )
    assert host.call("release.state", "r1") == {"present": True}


@pytest.mark.fault("60 a release that others may write to")
def test_a_release_that_others_may_write_to_is_refused(host: Host) -> None:
    host.sync("r1", TREE)
    (host.releases / "r1" / "lib").chmod(0o777)
    with pytest.raises(UntrustedPath, match="lib may be written to by others") as caught:
        host.call("release.state", "r1")
    assert (
        format_advice("n1", *explain(caught.value)[1:])
        == f"`tfdeploy exec --limit n1 -- chmod go-w {host.releases}/r1/lib`"
    )
    (host.releases / "r1" / "lib").chmod(0o700)
    (host.releases / "r1" / "train.py").chmod(0o666)
    with pytest.raises(UntrustedPath, match=r"train\.py may be written to by others"):
        host.call("release.state", "r1")
