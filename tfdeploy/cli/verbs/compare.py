"""Run `tfdeploy compare`: show what differs between runs, and their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.compare import MAX_RUNS, Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.state import open_run_store
from tfdeploy.cli.written_page import check_page_target, write_page
from tfdeploy.errors import UsageError, worst_exit_code
from tfdeploy.model.report.compare import differing_code_lines, final_metrics, find_differences
from tfdeploy.operations.compare import collect_runs
from tfdeploy.text.units import format_count
from tfdeploy.ui.comparison import show_comparison
from tfdeploy.ui.report.comparison_page import comparison_page

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import CompareAnswer


def run(flags: Flags) -> int:
    if not 2 <= len(flags.runs) <= MAX_RUNS:
        raise UsageError(
            f"{format_count(len(flags.runs), 'run')} cannot be compared",
            where="RUN",
            next=f"name 2 to {MAX_RUNS} runs: `tfdeploy runs` lists the runs",
        )
    target = Path(flags.to) if flags.to else None
    if target is not None:
        check_page_target(target, flags.overwrite)
    with open_fleet(flags) as fleet:
        chosen = [choose_run(replace(flags, run_prefix=name), fleet) for name in flags.runs]
        names = [each.plan.run for each in chosen]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"{name} is named twice", where="RUN", next="`tfdeploy runs` lists other runs"
                )
        runs, errors = collect_runs(fleet, [each.plan for each in chosen], open_run_store())
    differs, final, lines = find_differences(runs), final_metrics(runs), differing_code_lines(runs)
    if target is not None:
        write_page(target, comparison_page(runs, differs, final, lines), flags.overwrite)
        print_message(target)
    if flags.json:
        answer: CompareAnswer = {
            "runs": names,
            "differs": differs,
            "final": final,
            "lines": lines,
        }
        print_json(answer)
    else:
        show_comparison(flags.out, names, differs, final, lines)
    show_errors(flags, errors, "no metrics from this host: ")
    return worst_exit_code([*(each.exit_code for each in chosen), *errors.values()])
