"""Test that a supervisor (the parent process of a task) starts a new minder (the process that looks
after a run on a host) only for its own run.
"""

from __future__ import annotations

import os
import signal

import pytest

from support.agent.cluster import Cluster, NewCluster, wait_until
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.supervise.ensure_minder import MinderWatch


@pytest.fixture
def cluster(hosts: NewCluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    # A supervisor makes its process a subreaper. Here this is pytest, which must not become one.
    monkeypatch.setattr(processes, "become_subreaper", lambda on=True: None)
    made = hosts("n1")
    made.prepare("r1", {"worker:0": ("n1", ["true"])})
    return made


def kill_minder(cluster: Cluster) -> None:
    paths = cluster.hosts["n1"].paths("r1")
    minder = task_processes.read_minder(paths)
    assert minder is not None
    os.kill(minder.pid, signal.SIGKILL)
    wait_until(lambda: not is_locked(paths.minder_lock))


def test_a_killed_minder_is_replaced(cluster: Cluster) -> None:
    paths = cluster.hosts["n1"].paths("r1")
    watch = MinderWatch(paths, paths.part(), {})
    kill_minder(cluster)
    watch.ensure_minder()
    wait_until(lambda: is_locked(paths.minder_lock))


def test_a_later_run_of_the_same_name_is_left_alone(cluster: Cluster) -> None:
    """If a later run has the same name, the supervisor of the earlier run must not start a minder.
    Such a minder would hold the lock file that the minder of the later run needs. Then the launch
    of the later run would fail.
    """
    paths = cluster.hosts["n1"].paths("r1")
    watch = MinderWatch(paths, paths.part(), {})
    kill_minder(cluster)
    paths.write_part(paths.part())
    watch.ensure_minder()
    watch.ensure_minder_until_end()
    assert not is_locked(paths.minder_lock)
    MinderWatch(paths, paths.part(), {}).ensure_minder()
    wait_until(lambda: is_locked(paths.minder_lock))
