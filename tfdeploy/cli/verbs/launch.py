"""Run `tfdeploy launch`: start a run, then show it, wait for it, or leave it running."""

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
from tfdeploy.cli.consent import make_confirm
from tfdeploy.cli.fleet import lock_holder, open_fleet, operator_name
from tfdeploy.cli.interrupts import interrupt_on_first_signal
from tfdeploy.cli.messages import print_unselected_hosts
from tfdeploy.cli.output import print_message
from tfdeploy.cli.project import load_job, load_whole_inventory
from tfdeploy.cli.run_names import check_run_name, make_run_id
from tfdeploy.cli.state import open_run_store, remember_plan, tree_cache_folder
from tfdeploy.cli.views import make_launch_view
from tfdeploy.model.inventory import select_hosts
from tfdeploy.model.plan import plan_to_json
from tfdeploy.operations.emit import make_wait_warner
from tfdeploy.operations.launch import LaunchRequest, launch, probe_and_plan
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.run_lookup.run_names import refuse_taken_run_name
from tfdeploy.planning import checks
from tfdeploy.planning.describe import COLUMNS, describe_plan
from tfdeploy.planning.options import Options
from tfdeploy.ui.jsonl import EventsFile
from tfdeploy.ui.reports import show_plan
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.summary import commands_for_running
from tfdeploy.ui.terminal import can_draw_dashboard

if TYPE_CHECKING:
    from tfdeploy.model.events import Event
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.plan import Plan


def run(flags: Flags) -> int:
    request = make_launch_request(flags)
    store = open_run_store()
    _print_other_folder(flags, request.job, store.newest_code_folder(request.job.name))
    recording = nullcontext() if flags.dry_run else closing(store.event_recorder(request.run))
    writing = nullcontext() if flags.events is None else closing(EventsFile(Path(flags.events)))
    with open_fleet(flags, flags.bwlimit) as fleet, writing as recorded, recording as recorder:
        plain = show_event = make_launch_view(flags)
        record_lines = partial(recorded.take_lines, request.run) if recorded else None

        def record(event: Event) -> None:
            for sink in (recorded, recorder):
                if sink is not None:
                    sink(event)

        def emit(event: Event) -> None:
            # In a dry run, notes of level "info" are not shown, because the printed plan contains
            # them.
            if not (flags.dry_run and event.kind == "note" and event.data["level"] == "info"):
                show_event(event)
            record(event)

        fleet.on_notice = make_wait_warner(emit)
        if flags.dry_run:
            plan = probe_and_plan(request, fleet, emit)
            if flags.name:
                refuse_taken_run_name(fleet, hosts_of(plan), request.job.name, flags.name)
            return _show_plan(flags, plan)
        watched = not flags.detach and not flags.json and not flags.quiet and can_draw_dashboard()
        if not watched:
            with interrupt_on_first_signal():
                plan = launch(request, fleet, store, emit)
                remember_plan(plan)
                if not flags.json:
                    print(plan.run, flush=True)
                if not (flags.json or flags.wait or flags.quiet):
                    _print_next_commands(flags, plan)
            from tfdeploy.cli.verbs.waiting import wait_if_requested

            return wait_if_requested(flags, fleet, plan, emit, record_lines)
        from tfdeploy.cli.dashboard import LaunchDashboard, show_dashboard

        with (
            interrupt_on_first_signal(),
            LaunchDashboard(flags, request.run, plain) as launch_dashboard,
        ):
            show_event = launch_dashboard
            plan = launch(request, fleet, store, emit)
            remember_plan(plan)
        if launch_dashboard.has_quit:
            _print_next_commands(flags, plan)
            return 0
        return show_dashboard(
            flags,
            fleet,
            plan,
            record=record,
            record_lines=record_lines,
            launch_board=launch_dashboard.board,
        )


def _print_next_commands(flags: Flags, plan: Plan) -> None:
    for command in commands_for_running(plan.run):
        print_message(f"next: {flags.add_file_flags(command)}")


def make_launch_request(
    flags: Flags, job: Job | None = None, whole_inventory: Inventory | None = None
) -> LaunchRequest:
    """Return the launch that flags, job and inventory define. Raises TfdeployError.

    If `job` or `whole_inventory` is None, it is read from its file.
    """
    job = _apply_flags(flags, job or load_job(flags))
    now = time.time()
    secrets = {} if flags.dry_run else config.read_secrets(job, os.environ)
    config.refuse_shown_secrets(job, secrets, {"--name": flags.name or "", "name": job.name})
    whole_inventory = whole_inventory or load_whole_inventory(flags, job)
    config.check_source_hosts(job, whole_inventory)
    inventory = select_hosts(whole_inventory, flags.limit, flags.exclude)
    if job.keep:
        unselected_host_names = (
            host.name for host in whole_inventory.hosts if host not in inventory.hosts
        )
        print_unselected_hosts(flags, unselected_host_names, " for newer checkpoints")
    return LaunchRequest(
        inventory=inventory,
        job=job,
        run=check_run_name(flags.name) if flags.name else make_run_id(job.name, now),
        now=now,
        operator=operator_name(),
        holder=lock_holder(),
        options=Options(
            ps=flags.ps,
            workers=flags.workers,
            ignore_keep=flags.ignore_keep,
            fresh=flags.fresh,
            allow_public=flags.allow_public,
            allow_open=flags.allow_open,
            any_mode=flags.force,
            preset=("TF_CONFIG",) if "TF_CONFIG" in os.environ else (),
        ),
        secrets=secrets,
        sync=flags.sync,
        allow_secrets=flags.allow_secrets_in_code,
        force=flags.force,
        confirm=make_confirm(flags),
        cache=tree_cache_folder(),
        known=whole_inventory.hosts,
    )


def _print_other_folder(flags: Flags, job: Job, last: str | None) -> None:
    """Print a warning if the job's last run was launched from another folder."""
    if last and last != os.path.realpath(job.code) and os.path.isdir(last) and not flags.quiet:
        print_message(
            f"warning: the last run of job {job.name} was launched from {clean(last)}: jobs "
            "with the same name share runs and `keep`; if this is another job, set another `name:`"
        )


def _apply_flags(flags: Flags, job: Job) -> Job:
    """Return the job with the settings that the flags override."""
    job = config.with_data_via(job, flags.via)
    if flags.after_dashes is not None:
        config.check_command_words(flags.after_dashes, job)
        places = {**job.places, "command": "the command line, behind --"}
        job = replace(job, command=flags.after_dashes, places=places)
    job = replace(job, mode=flags.mode or job.mode)
    checks.require_mode(job)
    checks.require_command(job)
    return job


def _show_plan(flags: Flags, plan: Plan) -> int:
    if flags.json:
        print(json.dumps(plan_to_json(plan), indent=2))
        return 0
    shown = describe_plan(plan)
    show_plan(flags.out, shown.heading, COLUMNS, shown.rows, shown.commands, shown.notes)
    return 0
