"""`tfdeploy launch`: starts a run, then shows it, waits for it, or leaves it."""

from __future__ import annotations

import json
import sys
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, finish_parser
from tfdeploy.cli.options import add_allow_secrets, add_bwlimit, add_via, positive
from tfdeploy.model.job import MODES, Mode, Via

if TYPE_CHECKING:
    from tfdeploy.model.job import Job
    from tfdeploy.operations.launch import Launch


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    takes_words = True

    mode: Mode | None = None
    ps: int | None = None
    workers: int | None = None
    name: str | None = None
    wait: bool = False
    detach: bool = False
    dry_run: bool = False
    sync: bool = True
    ignore_keep: bool = False
    fresh: bool = False
    allow_public: bool = False
    allow_open: bool = False
    force: bool = False
    events: str | None = None
    via: Via | None = None
    allow_secrets_in_code: bool = False


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "launch",
        help="start a run",
        usage="tfdeploy launch [--mode MODE] [options] [-- python train.py --lr 0.1]",
        description="Starts a run on all its hosts or on none: lock, probe, plan, sync, prepare, start, commit.",
        epilog="Words after -- take the place of the job's command. The run id is printed alone on stdout.",
    )
    parser.add_argument("--mode", choices=MODES, default=None, help="how the tasks train together (job file: mode)")
    parser.add_argument("--ps", type=positive, metavar="N", help="so many parameter servers")
    parser.add_argument("--workers", type=positive, metavar="N", help="so many workers")
    parser.add_argument("--name", metavar="RUN", help="the run's id, instead of one with date and time")
    after = parser.add_mutually_exclusive_group()
    after.add_argument("--wait", action="store_true", help="stay until the run ends; exit with how it ended")
    after.add_argument("--detach", action="store_true", help="return once all is up, also on a terminal")
    after.add_argument("--dry-run", action="store_true", help="stop after the plan, show it and send nothing")
    parser.add_argument("--no-sync", dest="sync", action="store_false", help="take the release that is there")
    fresh = "start from zero; checkpoints and all else in `keep` stay on their hosts under another name"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    ignore = "go on from what the chief's host has (or from zero) although newer checkpoints lie on another host"
    parser.add_argument("--ignore-keep", action="store_true", help=ignore)
    parser.add_argument("--allow-public", action="store_true", help="consent to public addresses in the cluster")
    parser.add_argument("--allow-open", action="store_true", help="consent to hosts whose ports `protect: auto` cannot guard")
    parser.add_argument("--force", action="store_true", help="go on in spite of what `tfdeploy check` would call an error")
    parser.add_argument("--events", metavar="FILE", help="write every event as a JSON line")
    add_bwlimit(parser)
    add_via(parser)
    add_allow_secrets(parser)
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.dashboard import Beginning, dashboard
    from tfdeploy.cli.interrupts import interruptible_once
    from tfdeploy.cli.views import events_to, launch_view, on_terminal
    from tfdeploy.operations.emit import notices_to
    from tfdeploy.operations.find_run import hosts_of
    from tfdeploy.operations.launch import launch, plan_only
    from tfdeploy.operations.run_names import refuse_taken

    asked = asked_for(flags)
    store = context.store()
    recording = nullcontext() if flags.dry_run else closing(store.recorder(asked.run))
    with context.open_fleet(flags) as fleet, events_to(flags.events) as recorded, recording as recorder:
        plain = show = launch_view(flags)

        def record(event: Any) -> None:
            for sink in (recorded, recorder):
                if sink is not None:
                    sink(event)

        def emit(event: Any) -> None:
            if not (flags.dry_run and event.kind == "note" and event.data["level"] == "info"):  # the printed plan has these notes
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
            return _afterwards(flags, fleet, plan, emit, _lines_to(recorded, plan))
        with interruptible_once(), Beginning(flags, asked.run, plain) as beginning:
            show = beginning
            plan = launch(asked, fleet, store, emit)
        if beginning.left:
            return 0
        return dashboard(flags, fleet, plan, record=record, record_lines=_lines_to(recorded, plan), before=beginning.board)


def asked_for(flags: Flags) -> Launch:
    """The command line and what it needs, as one value. Raises TfdeployError."""
    import os
    import time

    from tfdeploy import config
    from tfdeploy.cli import context
    from tfdeploy.model.selection import select
    from tfdeploy.operations.launch import Launch
    from tfdeploy.planning.options import Options

    job = _job(flags)
    now = time.time()
    holder = context.holder()
    secrets = {} if flags.dry_run else config.read_secrets(job, os.environ)
    config.refuse_shown_secrets(job, secrets, {"--name": flags.name or "", "name": job.name})
    whole = context.whole_inventory(flags, job)
    config.check_sources(job, whole)
    inventory = select(whole, flags.limit, flags.exclude)
    if job.keep:
        left_out = (host.name for host in whole.hosts if host not in inventory.hosts)
        context.show_unasked(flags, left_out, " for a newer keep")
    return Launch(
        inventory=inventory,
        job=job,
        run=context.checked_run_name(flags.name) if flags.name else context.new_run_id(job.name, now),
        now=now,
        operator=holder.words,
        holder=holder.as_json(now),
        options=Options(
            ps=flags.ps,
            workers=flags.workers,
            ignore_keep=flags.ignore_keep,
            fresh=flags.fresh,
            allow_public=flags.allow_public,
            allow_open=flags.allow_open,
            preset=tuple(name for name in ("TF_CONFIG",) if name in os.environ),
        ),
        secrets=secrets,
        sync=flags.sync,
        allow_secrets=flags.allow_secrets_in_code,
        force=flags.force,
        confirm=context.consent_of(flags),
        cache=context.state_folder() / "trees",
        known=whole.hosts,
    )


def _job(flags: Flags) -> Job:
    from tfdeploy import config
    from tfdeploy.cli import context
    from tfdeploy.errors import UsageError

    job = config.with_via(context.load_job(flags), flags.via)
    if flags.after is not None:
        config.check_command(tuple(flags.after), job)
        job = replace(job, command=tuple(flags.after), places={**job.places, "command": "the command line, behind --"})
    if flags.mode:
        job = replace(job, mode=flags.mode)
    if job.mode is None:
        raise UsageError(
            "which mode?", where=job.source or "tfdeploy launch", next="--mode async, or `mode: async` in the job file"
        )
    if not job.command:
        raise UsageError("no command to run", where=job.source, next="`command: [python, train.py]` in the job file, or after --")
    return job


def _show_plan(flags: Flags, plan: Any) -> int:
    from tfdeploy.model.plan import plan_to_json
    from tfdeploy.planning.describe import COLUMNS, describe
    from tfdeploy.ui.reports import show_plan
    from tfdeploy.ui.terminal import terminal_of

    if flags.json:
        print(json.dumps(plan_to_json(plan), indent=2))
        return 0
    shown = describe(plan)
    show_plan(
        terminal_of(sys.stdout, flags.color),
        shown.heading,
        COLUMNS,
        shown.rows,
        shown.commands,
        shown.notes,
    )
    return 0


def _show_next(flags: Flags, run: str) -> None:
    """Print how to follow and to stop the run, if this command does neither."""
    if not flags.wait and not flags.quiet:
        for line in (f"tfdeploy status --watch {run}", f"tfdeploy logs -f {run}", f"tfdeploy stop {run}"):
            print(f"next: {flags.typed(line)}", file=sys.stderr)


def _lines_to(events: Any, plan: Any) -> Any:
    """What writes a batch of lines to --events FILE, or None."""
    return None if events is None else partial(events.take_lines, plan.run)


def _afterwards(flags: Flags, fleet: Any, plan: Any, emit: Any, record_lines: Any) -> int:
    from tfdeploy.cli.views import wait_plainly
    from tfdeploy.model.status import exit_code, run_view_json
    from tfdeploy.operations.status import status

    code = 0
    if flags.wait:
        code = exit_code(wait_plainly(flags, fleet, plan, emit, record_lines))
    if flags.json:
        print(json.dumps(run_view_json(status(fleet, plan).view)))
    return code
