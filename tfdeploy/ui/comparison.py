"""What `tfdeploy compare` shows: what differs, a column for each run; then what each has reached."""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.model.compare import Difference, Final
from tfdeploy.ui.amounts import figure
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal

MOST_FILES = 20


def show_comparison(terminal: Terminal, runs: Sequence[str], differs: Sequence[Difference], final: Sequence[Final]) -> None:
    files = [row for row in differs if row["what"] == "code"]
    rows = [(row["what"], row["key"], *(value if value is not None else "-" for value in row["values"])) for row in differs]
    left_out = len(files) - MOST_FILES
    if left_out > 0:
        unshown = {row["key"] for row in files[MOST_FILES:]}
        rows = [row for row in rows if row[0] != "code" or row[1] not in unshown]
    if rows:
        show_rows(terminal, ["differs", "in", *runs], rows)
    else:
        terminal.write("command, env, code, plan and versions are the same\n")
    if left_out > 0:
        terminal.write(f"and {left_out:,} more files of the code; --json has them all\n")
    metrics = list(dict.fromkeys(row["metric"] for row in final))
    if metrics:
        terminal.write("\n")
        values = {(row["run"], row["metric"]): row for row in final}
        show_rows(terminal, ["final", *runs], [(name, *(_value(values.get((run, name))) for run in runs)) for name in metrics])


def _value(row: Final | None) -> str:
    if row is None:
        return "-"
    at = f" at step {row['step']:,}" if row["step"] is not None and row["metric"] != "step" else ""
    return figure(row["value"]) + at
