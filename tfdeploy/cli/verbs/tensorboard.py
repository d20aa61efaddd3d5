"""Run `tfdeploy tensorboard`: show a run in TensorBoard, through the SSH session.

Ctrl-C ends TensorBoard on the host, and the connection to the host.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.tensorboard import Flags
from tfdeploy.cli.browser import open_secret_url
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.output import print_message
from tfdeploy.errors import UsageError
from tfdeploy.model.text.folding import fold_names
from tfdeploy.model.text.name_patterns import matched
from tfdeploy.operations.fetch import deciding_host
from tfdeploy.operations.tensorboard import tensorboard

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import TensorBoardAnswer
    from tfdeploy.model.plan import Plan


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        plan, only_hosts, _ = choose_run(flags, fleet)
        host = _match_one_host(plan, flags.host) if flags.host else deciding_host(plan)
        _refuse_left_out(only_hosts, host)
        if not flags.quiet:
            print_message(f"starting TensorBoard for {plan.run} ...")
        try:
            with tensorboard(fleet, plan, host=host, port=flags.port) as board:
                answer: TensorBoardAnswer = {"run": plan.run, "host": board.host, "url": board.url}
                print(json.dumps(answer) if flags.json else board.url, flush=True)
                if not flags.quiet:
                    print_message(f"on {board.host}; Ctrl-C stops TensorBoard")
                with open_secret_url(board.url) if flags.open else nullcontext():
                    board.wait()
        except KeyboardInterrupt:
            return 0
    return 0


def _match_one_host(plan: Plan, pattern: str) -> str:
    """Return the only host of the run that matches `pattern`. Raises UsageError otherwise."""
    names = [host.host for host in plan.hosts]
    matches = matched(pattern, names, {}, flag="--host", kind="host", of=f" of {plan.run}")
    if len(matches) > 1:
        named = fold_names(name for name in names if name in matches)
        raise UsageError(
            f"TensorBoard runs on one host, not on {named}",
            where=f"--host {pattern}",
            next="name one of them",
        )
    return matches.pop()


def _refuse_left_out(only_hosts: Collection[str] | None, host: str | None) -> None:
    """Raise UsageError if --limit and --exclude leave out `host`, where TensorBoard would run."""
    if only_hosts is not None and host is not None and host not in only_hosts:
        what = f"TensorBoard would run on {host}, which is left out"
        raise UsageError(
            what, where="--limit/--exclude", next="--host names another host of the run"
        )
