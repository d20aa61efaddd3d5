"""`tfdeploy compare RUN RUN...`: what differs between runs, and what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import OfRun, finish_parser
from tfdeploy.errors import UsageError

if TYPE_CHECKING:
    from tfdeploy.model.printed import CompareAnswer

MOST_RUNS = 10


@dataclass(frozen=True, kw_only=True)
class Flags(OfRun):
    unbounded = "runs are compared whole"

    runs: Sequence[str] = ()
    to: str | None = None
    overwrite: bool = False


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="what differs between runs, and what came of it",
        description="What differs in command, environment, lines of code, plan and versions, and the last value of each metric.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"ids or unique prefixes, two to {MOST_RUNS}")
    parser.add_argument("--to", metavar="FILE", help="also as one HTML page, with the curves of all runs")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.written_page import check_target, write_page
    from tfdeploy.errors import worst
    from tfdeploy.model.compare import code_lines, differences, finals
    from tfdeploy.model.units import count
    from tfdeploy.operations.compare import compared
    from tfdeploy.ui.comparison import show_comparison
    from tfdeploy.ui.report.comparison_page import comparison_page
    from tfdeploy.ui.terminal import terminal_of

    if not 2 <= len(flags.runs) <= MOST_RUNS:
        what = f"{count(len(flags.runs), 'run')} cannot be compared"
        raise UsageError(what, where="RUN", next=f"name two to {MOST_RUNS}: tfdeploy runs")
    target = Path(flags.to) if flags.to else None
    if target is not None:
        check_target(target, flags.overwrite)
    with context.open_fleet(flags) as fleet:
        chosen = [context.chosen_run(replace(flags, wanted=name), fleet) for name in flags.runs]
        names = [each.plan.run for each in chosen]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{twice} is named twice", where="RUN", next="tfdeploy runs lists the others")
        runs, errors = compared(fleet, [each.plan for each in chosen], context.store())
    differs, final, lines = differences(runs), finals(runs), code_lines(runs)
    if target is not None:
        write_page(target, comparison_page(runs, differs, final, lines), flags.overwrite)
        print(target, file=sys.stderr)
    if flags.json:
        answer: CompareAnswer = {"runs": names, "differs": differs, "final": final, "lines": lines}
        print(json.dumps(answer))
    else:
        show_comparison(terminal_of(sys.stdout, flags.color), names, differs, final, lines)
    context.show_errors(flags, errors, "no metrics from here: ")
    return worst([*(each.exit_code for each in chosen), *(error.exit_code for error in errors.values())])
