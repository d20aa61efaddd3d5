"""`tfdeploy launch`: starts a run, then shows it, waits for it, or leaves it."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import config
from tfdeploy.cli.arguments.launch import Flags
from tfdeploy.cli.consent import consent_of
from tfdeploy.cli.fleet import lock_holder, open_fleet, operator
from tfdeploy.cli.interrupts import interruptible_once
from tfdeploy.cli.messages import show_unasked
from tfdeploy.cli.output import say
from tfdeploy.cli.project import load_job, whole_inventory
from tfdeploy.cli.run_names import checked_run_name, new_run_id
from tfdeploy.cli.state import run_store, tree_cache
from tfdeploy.cli.views import launch_view
from tfdeploy.errors import UsageError
from tfdeploy.model.plan import plan_to_json
from tfdeploy.model.selection import select
from tfdeploy.operations.emit import notices_to
from tfdeploy.operations.launch import Launch, launch, plan_only
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.run_lookup.run_names import refuse_taken
from tfdeploy.planning.describe import COLUMNS, describe
from tfdeploy.planning.options import Options
from tfdeploy.ui.jsonl import EventsFile
from tfdeploy.ui.reports import show_plan
from tfdeploy.ui.terminal import on_terminal

if TYPE_CHECKING:
    from tfdeploy.model.events import Event
    from tfdeploy.model.job import Job
    from tfdeploy.model.plan import Plan


def run(flags: Flags) -> int:
    asked = asked_for(flags)
    store = run_store()
    recording = nullcontext() if flags.dry_run else closing(store.recorder(asked.run))
    writing = nullcontext() if flags.events is None else EventsFile(Path(flags.events))
    with open_fleet(flags, flags.bwlimit) as fleet, writing as recorded, recording as recorder:
        plain = show = launch_view(flags)
        record_lines = partial(recorded.take_lines, asked.run) if recorded else None

        def record(event: Event) -> None:
            for sink in (recorded, recorder):
                if sink is not None:
                    sink(event)

        def emit(event: Event) -> None:
            # the printed plan has these notes
            if not (flags.dry_run and event.kind == "note" and event.data["level"] == "info"):
                show(event)
            record(event)

        fleet.on_notice = notices_to(emit)
        if flags.dry_run:
            plan = plan_only(asked, fleet, emit)
            if flags.name:
                refuse_taken(fleet, hosts_of(plan), asked.job.name, flags.name)
            return _show_plan(flags, plan)
        watched = not flags.detach and not flags.json and not flags.quiet and on_terminal()
        if not watched:
            with interruptible_once():
                plan = launch(asked, fleet, store, emit)
                if not flags.json:
                    print(plan.run, flush=True)
                    _show_next(flags, plan.run)
            from tfdeploy.cli.verbs.waiting import wait_or_leave

            return wait_or_leave(flags, fleet, plan, emit, record_lines)
        from tfdeploy.cli.dashboard import Beginning, dashboard

        with interruptible_once(), Beginning(flags, asked.run, plain) as beginning:
            show = beginning
            plan = launch(asked, fleet, store, emit)
        if beginning.left:
            return 0
        return dashboard(
            flags, fleet, plan, record=record, record_lines=record_lines, before=beginning.board
        )


def asked_for(flags: Flags) -> Launch:
    """The command line and what it needs, as one value. Raises TfdeployError."""
    job = _job(flags)
    now = time.time()
    secrets = {} if flags.dry_run else config.read_secrets(job, os.environ)
    config.refuse_shown_secrets(job, secrets, {"--name": flags.name or "", "name": job.name})
    whole = whole_inventory(flags, job)
    config.check_sources(job, whole)
    inventory = select(whole, flags.limit, flags.exclude)
    if job.keep:
        left_out = (host.name for host in whole.hosts if host not in inventory.hosts)
        show_unasked(flags, left_out, " for a newer keep")
    return Launch(
        inventory=inventory,
        job=job,
        run=checked_run_name(flags.name) if flags.name else new_run_id(job.name, now),
        now=now,
        operator=operator(),
        holder=lock_holder(),
        options=Options(
            ps=flags.ps,
            workers=flags.workers,
            ignore_keep=flags.ignore_keep,
            fresh=flags.fresh,
            allow_public=flags.allow_public,
            allow_open=flags.allow_open,
            preset=("TF_CONFIG",) if "TF_CONFIG" in os.environ else (),
        ),
        secrets=secrets,
        sync=flags.sync,
        allow_secrets=flags.allow_secrets_in_code,
        force=flags.force,
        confirm=consent_of(flags),
        cache=tree_cache(),
        known=whole.hosts,
    )


def _job(flags: Flags) -> Job:
    job = config.with_via(load_job(flags), flags.via)
    if flags.after is not None:
        config.check_command(tuple(flags.after), job)
        job = replace(
            job,
            command=tuple(flags.after),
            places={**job.places, "command": "the command line, behind --"},
        )
    if flags.mode:
        job = replace(job, mode=flags.mode)
    if job.mode is None:
        raise UsageError(
            "which mode?",
            where=job.source or "tfdeploy launch",
            next="--mode async, or `mode: async` in the job file",
        )
    if not job.command:
        raise UsageError(
            "no command to run",
            where=job.source,
            next="`command: [python, train.py]` in the job file, or after --",
        )
    return job


def _show_plan(flags: Flags, plan: Plan) -> int:
    if flags.json:
        print(json.dumps(plan_to_json(plan), indent=2))
        return 0
    shown = describe(plan)
    show_plan(flags.out, shown.heading, COLUMNS, shown.rows, shown.commands, shown.notes)
    return 0


def _show_next(flags: Flags, run: str) -> None:
    """Print how to follow and to stop the run, if this command does neither."""
    if not flags.wait and not flags.quiet:
        for line in (
            f"tfdeploy status --watch {run}",
            f"tfdeploy logs -f {run}",
            f"tfdeploy stop {run}",
        ):
            say(f"next: {flags.typed(line)}")
