"""Refuse a name for a new run that exists on its hosts already, as `run.prepare` would do."""

from __future__ import annotations

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host
from tfdeploy.operations.run_lookup.find_run import find_runs
from tfdeploy.transport.protocols import Fleet


def refuse_taken(fleet: Fleet, hosts: tuple[Host, ...], job: str, run: str) -> None:
    """Raise Refused if a host has a run of this job and name, unless that run was rolled back.

    Hosts without an answer are ignored, because the probe reports them.
    """
    runs, _ = find_runs(fleet, hosts, job)
    for known in runs:
        if known.run == run and (known.live or known.committed or known.damaged):
            where = f"host {', '.join(known.states)}"
            raise Refused(
                f"run {run} exists already", where=where, next="tfdeploy launch --name ANOTHER"
            )
