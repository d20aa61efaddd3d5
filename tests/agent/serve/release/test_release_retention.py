"""Test that old releases (the code of earlier syncs) are removed from a host, except releases that
a run uses.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from support.agent.release_host import Host
from tfdeploy.agent import layout, wire
from tfdeploy.agent.serve.release import retention as release_retention


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


def test_old_releases_go_but_not_those_in_use(host: Host) -> None:
    for number in range(6):
        host.sync(f"r{number}", {"a": b"%d" % number}, keep_releases=10)
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
        os.utime(path, (1, time.time() - release_retention.STALE_S - 1))
    os.rename(fresh, fresh.replace("-r9", "-elsewhere-r9"))
    host.sync("r7", {"a": b"7"}, keep_releases=3)
    left = {name for name in os.listdir(host.releases) if not name.endswith(".json")}
    assert left == {"r0", "r4", "r5", "r7", os.path.basename(fresh).replace("-r9", "-elsewhere-r9")}
