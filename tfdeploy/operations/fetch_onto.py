"""Copy a job's newest keep folders to one host, for `tfdeploy fetch --keep --onto HOST`.

A launch on HOST then continues from the copied checkpoints. The newest keep folders are found by
the same rule as in a launch. Nothing is copied while a run is live on HOST or on the host that has
the newest keep folders, because a live run writes to its keep folders.
"""

from __future__ import annotations

from tfdeploy.errors import Refused, UsageError
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.operations.broadcast.copy_keep import KeepCopyRequest, copy_keep
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.probe import ProbeQuestions, probe
from tfdeploy.planning.keep import HostKeep, newest_keep_folder
from tfdeploy.transport.protocols import Fleet


def copy_newest_keep_to(
    fleet: Fleet, inventory: Inventory, job: Job, host: str, holder: LockHolder, emit: Emit
) -> HostKeep:
    """Copy the job's newest keep folders to `host`. Return where the newest keep folders are.

    Copies nothing if they are already on `host`. Raises UsageError (no such host, the job has no
    `keep`), Refused (a live run, no host has files in `keep`), and the errors of hosts.
    """
    if host not in {each.name for each in inventory.hosts}:
        names = ", ".join(each.name for each in inventory.hosts[:12])
        raise UsageError(
            f"no host {host!r} in the inventory", where="--onto", next=f"the hosts are {names}"
        )
    if not job.keep:
        raise UsageError(
            f"job {job.name} keeps nothing",
            where=job.source or None,
            next="write `keep: [checkpoints]` in the job file",
        )
    facts = probe(
        fleet,
        inventory.hosts,
        ProbeQuestions.for_hosts(inventory.hosts, job=job.name, keep=job.keep),
        emit=emit,
    )
    kept = newest_keep_folder(job, facts, (), host)
    if kept is None:
        raise Refused(f"no host has files in `keep` of job {job.name}", next="`tfdeploy runs`")
    if kept.host == host:
        return kept
    source_and_target = (inventory.host(kept.host), inventory.host(host))
    for name in (kept.host, host):
        for live in facts[name].live_runs:
            raise Refused(
                f"run {live.run} of {live.who} is alive on this host and writes to `keep`",
                where=name,
                next=f"`tfdeploy stop {live.run}`, then run the same command again",
            )
    with HostLocks(fleet, source_and_target, job.name, "fetch", holder, emit).hold():
        copy_keep(
            fleet,
            KeepCopyRequest(job.name, job.keep, source_and_target[0]),
            source_and_target,
            emit,
        )
    return kept
