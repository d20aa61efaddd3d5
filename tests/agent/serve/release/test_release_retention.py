"""Test that old releases (the code of earlier syncs) are removed from a host, except releases that
a run uses.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from support.agent.release_host import Host
from tfdeploy.agent import layout, wire
from tfdeploy.agent.serve.release import store as release_store


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def part_of_a_run(host: Host, run: str, release: str, phase: str) -> None:
    folder = Path(layout.host_dir(host.context.workdir, "job", run, "n1"))
    folder.mkdir(parents=True)
    part = wire.HostPart(
        run=run, job="job", mode="async", host="n1", plan_digest="d", release=release
    )
    (folder / "part.json").write_text(json.dumps(wire.to_wire(part)))
    (folder / "state.json").write_text(
        json.dumps(wire.to_wire(wire.HostRunState(run=run, job="job", host="n1", phase=phase)))
    )


def test_old_releases_go_but_not_those_in_use(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_store, "KEEP", 10)
    for number in range(6):
        host.sync(f"r{number}", {"a": b"%d" % number})
        os.utime(host.releases / f"r{number}", (number, number))
        os.utime(host.releases / f"r{number}.json", (number, number))
    part_of_a_run(host, "live", "r0", "committed")
    part_of_a_run(host, "over", "r1", "ended")
    stale = host.begin("r8", {"a": b"8"})["staging"]
    other = str(host.releases / ".staging-elsewhere-r8")
    # An agent of an older version left this file.
    Path(stale + ".json").write_text("{}")
    for end in ("", ".json"):
        os.rename(stale + end, other + end)
    fresh = host.begin("r9", {"a": b"9"})["staging"]
    for path in (other, other + ".json"):
        os.utime(path, (1, time.time() - release_store.STALE_S - 1))
    os.rename(fresh, fresh.replace("-r9", "-elsewhere-r9"))
    monkeypatch.setattr(release_store, "KEEP", 3)
    host.sync("r7", {"a": b"7"})
    left = {name for name in os.listdir(host.releases) if not name.endswith(".json")}
    assert left == {"r0", "r4", "r5", "r7", os.path.basename(fresh).replace("-r9", "-elsewhere-r9")}


def test_the_oldest_release_becomes_the_next_one(host: Host) -> None:
    """Files that are equal in both releases keep their inodes. Files of the old release that were
    removed or changed since, or that got another mode, are not reused. Releases that share files
    with the old release do not change.
    """
    tree: Any = {"a": b"same", "lib/b": b"same too", "old": b"old", "run": b"x", "link": "a"}
    for number in range(release_store.KEEP):
        host.sync(f"r{number}", {**tree, "c": b"%d" % number})
        for end in ("", ".json"):
            os.utime(host.releases / f"r{number}{end}", (number, number))
    oldest = os.stat(host.releases / "r0")
    new = {"a": b"same", "lib/b": b"same too", "run": ("exec", b"x"), "link": "lib/b", "c": b"new"}
    assert sorted(host.sync("new", new)["missing"]) == ["c", "run"]
    assert host.tree("new") == new
    assert os.path.samestat(os.stat(host.releases / "new"), oldest)
    assert os.path.samefile(host.releases / "new/a", host.releases / "r4/a")
    assert host.tree("r4") == {**tree, "c": b"4"}
    assert not (host.releases / "r0.json").exists() and not (host.releases / "r0").exists()


def test_a_cut_sync_has_taken_at_most_the_oldest_release(host: Host) -> None:
    for number in range(release_store.KEEP):
        host.sync(f"r{number}", {"a": b"%d" % number})
        for end in ("", ".json"):
            os.utime(host.releases / f"r{number}{end}", (number, number))
    staging = host.begin("cut", {"a": b"cut"})["staging"]
    assert os.stat(staging).st_mtime > time.time() - release_store.STALE_S
    host.begin("cut-again", {"a": b"cut again"})
    left = {name for name in os.listdir(host.releases) if not name.startswith(".")}
    assert left == {f"r{number}{end}" for number in range(1, 5) for end in ("", ".json")}
    host.sync("whole", {"a": b"whole"})
    assert host.tree("whole") == {"a": b"whole"} and host.tree("r4") == {"a": b"4"}
