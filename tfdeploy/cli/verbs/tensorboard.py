"""`tfdeploy tensorboard`: TensorBoard on a run's files, through the SSH session; Ctrl-C ends it
here and on the host."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.tensorboard import Flags
from tfdeploy.cli.browser import opened_in_browser
from tfdeploy.cli.chosen_run import chosen_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.output import say
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
        plan, only, _ = chosen_run(flags, fleet)
        host = _one_host(plan, flags.host) if flags.host else deciding_host(plan)
        _refuse_outside(only, host)
        if not flags.quiet:
            say(f"starting TensorBoard for {plan.run} ...")
        try:
            with tensorboard(fleet, plan, host=host, port=flags.port) as board:
                answer: TensorBoardAnswer = {"run": plan.run, "host": board.host, "url": board.url}
                print(json.dumps(answer) if flags.json else board.url, flush=True)
                if not flags.quiet:
                    say(f"on {board.host}; Ctrl-C ends it")
                with opened_in_browser(board.url) if flags.open else nullcontext():
                    board.wait()
        except KeyboardInterrupt:
            return 0
    return 0


def _one_host(plan: Plan, pattern: str) -> str:
    names = [host.host for host in plan.hosts]
    found = matched(pattern, names, {}, flag="--host", kind="host", of=f" of {plan.run}")
    if len(found) > 1:
        named = fold_names(name for name in names if name in found)
        raise UsageError(
            f"TensorBoard runs on one host, not on {named}",
            where=f"--host {pattern}",
            next="name one of them",
        )
    return found.pop()


def _refuse_outside(only: Collection[str] | None, host: str | None) -> None:
    if only is not None and host is not None and host not in only:
        what = f"TensorBoard would run on {host}, which is left out"
        raise UsageError(
            what, where="--limit/--exclude", next="--host names another host of the run"
        )
