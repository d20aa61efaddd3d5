"""`tfdeploy status`: the tasks of a run, as its hosts report them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.status import Flags
from tfdeploy.cli.chosen_run import chosen_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import show_errors, show_unasked, unasked
from tfdeploy.cli.output import say
from tfdeploy.errors import TfdeployError, worst
from tfdeploy.model.status.run_status import run_view_json
from tfdeploy.operations.status import lines_of_first_death, status
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.watch.relay import in_words, relay_end
from tfdeploy.operations.watch.resume import resume
from tfdeploy.ui.reports import show_status
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import on_terminal

if TYPE_CHECKING:
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.status import Status
    from tfdeploy.transport.protocols import Fleet


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        plan, only, plan_code = chosen_run(flags, fleet)
        if flags.watch and not flags.json and on_terminal():
            from tfdeploy.cli.dashboard import dashboard

            dashboard(flags, fleet, plan, last=200, only=only)
            show_unasked(flags, unasked(plan, only))
            return 0
        while True:
            found = status(fleet, plan, only)
            _show(flags, fleet, plan, found)
            resumed = flags.watch and _resume_on(fleet, plan, found.abandoned)
            if flags.watch and found.unheard is not None:
                say(in_words(*found.unheard) + ": told from here")
                relay_end(fleet, plan, *found.unheard)
            if not flags.watch or (found.view.final and not resumed):
                break
            time.sleep(2)
        for problem in () if flags.watch else _watch_mends(found):
            say(f"{problem}:")
            say(f"  next: {flags.typed(f'tfdeploy status {plan.run} --watch')}")
        show_errors(flags, found.errors)
        show_unasked(flags, found.view.unasked)
        return worst([plan_code, _unreachable_code(plan, only, found.errors)])


def _watch_mends(found: Status) -> Iterator[str]:
    """Yield what `status --watch` would mend."""
    if found.view.state in ("running", "starting", "lost"):
        for host in found.abandoned:
            yield f"[{host}] all of the run is gone here (rebooted, or killed); this makes it go on"
    if found.unheard is not None:
        yield in_words(*found.unheard) + "; this tells them from here"


def _unreachable_code(
    plan: Plan, only: Collection[str] | None, errors: dict[str, TfdeployError]
) -> int:
    """4 where no host answers, or the inventory lacks one of those that do not; else 0: `status`
    may miss some hosts."""
    asked = [host for host in plan.hosts if only is None or host.host in only]
    lacking = [host.host for host in asked if host.ssh and not host.ssh.get("address")]
    return 4 if errors and (lacking or len(errors) == len(asked)) else 0


def _resume_on(fleet: Fleet, plan: Plan, left: tuple[str, ...]) -> bool:
    """Makes the run go on, on hosts where all of it is gone. Whether it may go on at one of
    them."""
    found = False
    for host in left:
        try:
            found = resume(fleet, plan, host) or found
        except TfdeployError as error:
            say(f"[{host}] the run cannot go on here: {clean(error.what)}")
            found = True  # it is tried again at the next look
    return found


def _show(flags: Flags, fleet: Fleet, plan: Plan, found: Status) -> None:
    if flags.json:
        print(json.dumps(run_view_json(found.view)), flush=True)
        return
    fetched = FetchedLogs(Path("fetched") / plan.run / "logs")
    last_lines = lines_of_first_death(fleet, plan, found, fetched)
    as_of = "as of the last fetch" if fetched.used else ""
    show_status(flags.out, found.view, time.time(), flags.typed, last_lines, as_of)
