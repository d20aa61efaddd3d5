"""Declare the flags of `tfdeploy launch`."""

from __future__ import annotations

from tfdeploy.cli.arguments.sending import allow_secrets_switch, via_option
from tfdeploy.cli.declared import ALTERNATIVES, option, switch
from tfdeploy.cli.flags import CommonFlags, bwlimit_option
from tfdeploy.cli.options import integer_reader, positive
from tfdeploy.model.choices import MODES, Mode, Via


class Flags(CommonFlags):
    usage = "tfdeploy launch [--mode MODE] [options] [-- python train.py --lr 0.1]"
    description = (
        "Start a run on all its hosts or on none: lock, probe, plan, sync, prepare, start, commit."
    )
    epilog = "A command after -- replaces the one in the job file. Only the run id goes to stdout."
    takes_command = True

    mode: Mode | None = option(
        "--mode", choices=MODES, help="how the tasks train together (job file: mode)"
    )
    ps: int | None = option(
        "--ps",
        type=integer_reader("0 or more"),
        metavar="N",
        help="start N parameter servers (0: the workers hold the variables)",
    )
    workers: int | None = option("--workers", type=positive, metavar="N", help="start N workers")
    name: str | None = option(
        "--name", metavar="ID", help="the run's id (default: the job's name with date and time)"
    )
    wait: bool = switch(
        "--wait", group=ALTERNATIVES, help="wait until the run ends, and exit with its exit code"
    )
    detach: bool = switch(
        "--detach", group=ALTERNATIVES, help="return when all tasks are up, without the dashboard"
    )
    dry_run: bool = switch("--dry-run", group=ALTERNATIVES, help="only show the plan; send nothing")
    sync: bool = switch("--no-sync", default=True, help="use the code that is on the hosts already")
    fresh: bool = switch(
        "--fresh",
        help="start from zero; `keep` with its checkpoints stays on the hosts under another name",
    )
    ignore_keep: bool = switch(
        "--ignore-keep",
        help="continue from the checkpoints on the chief's host (or from zero), although another "
        "host has newer ones",
    )
    allow_public: bool = switch("--allow-public", help="allow public addresses in the cluster")
    allow_open: bool = switch(
        "--allow-open", help="allow hosts whose ports `protect: auto` cannot guard"
    )
    force: bool = switch(
        "--force",
        help="launch even if `tfdeploy check` would report errors, or the program is written for "
        "another mode",
    )
    events: str | None = option(
        "--events", metavar="FILE", help="write every event to FILE as a JSON line"
    )
    bwlimit: int | None = bwlimit_option()
    via: Via | None = via_option()
    allow_secrets_in_code: bool = allow_secrets_switch()
