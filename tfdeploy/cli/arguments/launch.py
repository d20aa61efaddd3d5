"""What `tfdeploy launch` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.arguments.sending import allow_secrets_switch, via_option
from tfdeploy.cli.declared import ALTERNATIVES, option, switch
from tfdeploy.cli.flags import CommonFlags, bwlimit_option
from tfdeploy.cli.options import positive
from tfdeploy.model.job import MODES, Mode, Via


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    usage = "tfdeploy launch [--mode MODE] [options] [-- python train.py --lr 0.1]"
    description = (
        "Starts a run on all its hosts or on none: lock, probe, plan, sync, prepare, start, commit."
    )
    epilog = (
        "Words after -- take the place of the job's command. The run id is printed alone on stdout."
    )
    takes_command = True

    mode: Mode | None = option(
        "--mode", choices=MODES, help="how the tasks train together (job file: mode)"
    )
    ps: int | None = option("--ps", type=positive, metavar="N", help="so many parameter servers")
    workers: int | None = option("--workers", type=positive, metavar="N", help="so many workers")
    name: str | None = option(
        "--name", metavar="RUN", help="the run's id, instead of one with date and time"
    )
    wait: bool = switch(
        "--wait", group=ALTERNATIVES, help="stay until the run ends; exit with how it ended"
    )
    detach: bool = switch(
        "--detach", group=ALTERNATIVES, help="return once all is up, also on a terminal"
    )
    dry_run: bool = switch(
        "--dry-run", group=ALTERNATIVES, help="stop after the plan, show it and send nothing"
    )
    sync: bool = switch("--no-sync", default=True, help="take the release that is there")
    fresh: bool = switch(
        "--fresh",
        help="start from zero; checkpoints and all else in `keep` stay on their hosts under "
        "another name",
    )
    ignore_keep: bool = switch(
        "--ignore-keep",
        help="go on from what the chief's host has (or from zero) although newer checkpoints lie "
        "on another host",
    )
    allow_public: bool = switch("--allow-public", help="consent to public addresses in the cluster")
    allow_open: bool = switch(
        "--allow-open", help="consent to hosts whose ports `protect: auto` cannot guard"
    )
    force: bool = switch(
        "--force", help="go on in spite of what `tfdeploy check` would call an error"
    )
    events: str | None = option("--events", metavar="FILE", help="write every event as a JSON line")
    bwlimit: int | None = bwlimit_option()
    via: Via | None = via_option()
    allow_secrets_in_code: bool = allow_secrets_switch()
