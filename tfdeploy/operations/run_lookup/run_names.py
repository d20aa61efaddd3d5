"""Refuse the name of a new run if a host already has a run of that name.

The verb `run.prepare` would refuse the name too, but only later in the launch.
"""

from __future__ import annotations

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Hosts
from tfdeploy.operations.run_lookup.find_run import find_runs
from tfdeploy.transport.protocols import Fleet


def refuse_taken_run_name(fleet: Fleet, hosts: Hosts, job: str, run: str) -> None:
    """Raise Refused if a host has a run of this job with this name that was not rolled back.

    Hosts without an answer are ignored, because the probe reports them.
    """
    runs, _ = find_runs(fleet, hosts, job)
    for existing in runs:
        if existing.run == run and (existing.live or existing.committed or existing.damaged):
            where = f"host {', '.join(existing.states)}"
            raise Refused(
                f"run {run} exists already", where=where, next="`tfdeploy launch --name ANOTHER`"
            )
