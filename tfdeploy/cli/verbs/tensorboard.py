"""Run `tfdeploy tensorboard`: show a run in TensorBoard, through the SSH session.

Ctrl-C ends TensorBoard on the host, and the connection to the host.
"""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.tensorboard import Flags
from tfdeploy.cli.browser import open_secret_url
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.output import print_message
from tfdeploy.errors import UsageError
from tfdeploy.operations.fetch import host_of_deciding_task
from tfdeploy.operations.tensorboard import tensorboard
from tfdeploy.text.names import fold_names, match_names

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import TensorBoardAnswer
    from tfdeploy.model.plan import Plan


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        plan, only_hosts, _ = choose_run(flags, fleet)
        host = _match_one_host(plan, flags.host) if flags.host else host_of_deciding_task(plan)
        if only_hosts is not None and host is not None and host not in only_hosts:
            raise UsageError(
                f"TensorBoard would run on {host}, which is excluded",
                where="--limit/--exclude",
                next="--host names another host of the run",
            )
        if not flags.quiet:
            print_message(f"starting TensorBoard for {plan.run} ...")
        with (
            suppress(KeyboardInterrupt),
            tensorboard(fleet, plan, host=host, port=flags.port) as board,
        ):
            answer: TensorBoardAnswer = {"run": plan.run, "host": board.host, "url": board.url}
            print(json.dumps(answer) if flags.json else board.url, flush=True)
            if not flags.quiet:
                print_message(f"on {board.host}; Ctrl-C stops TensorBoard")
            with open_secret_url(board.url) if flags.open else nullcontext():
                board.wait()
    return 0


def _match_one_host(plan: Plan, pattern: str) -> str:
    """Return the only host of the run that matches `pattern`. Raises UsageError otherwise."""
    names, suffix = plan.host_names, f" of {plan.run}"
    matches = match_names(pattern, names, {}, flag="--host", kind="host", of=suffix)
    if len(matches) > 1:
        named = fold_names(name for name in names if name in matches)
        raise UsageError(
            f"TensorBoard runs on one host, not on {named}",
            where=f"--host {pattern}",
            next="name one of them",
        )
    return matches.pop()
