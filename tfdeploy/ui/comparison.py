"""Show the result of `tfdeploy compare`: the differences, with a column for each run, then the
final values of each run."""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.model.report.compare import Difference, Final, LinesOfFile
from tfdeploy.ui.amounts import format_count, format_number
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal

# The maximum number of code files in the table.
MOST_FILES = 20
# The maximum number of lines of all diffs together. With --to or --json, more lines are written.
MOST_LINES = 200
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show_comparison(
    terminal: Terminal,
    runs: Sequence[str],
    differs: Sequence[Difference],
    final: Sequence[Final],
    lines: Sequence[LinesOfFile],
) -> None:
    left_out = {
        row["key"] for row in [row for row in differs if row["what"] == "code"][MOST_FILES:]
    }
    rows = [
        (row["what"], row["key"], *("-" if value is None else value for value in row["values"]))
        for row in differs
        if row["what"] != "code" or row["key"] not in left_out
    ]
    if rows:
        show_rows(terminal, ["differs", "in", *runs], rows)
    else:
        terminal.write("the runs have the same command, env, code, plan and versions\n")
    if left_out:
        terminal.write(
            f"and {format_count(len(left_out), 'more file')} of the code; --json has them all\n"
        )
    _show_lines(terminal, lines)
    metrics = list(dict.fromkeys(row["metric"] for row in final))
    if metrics:
        terminal.write("\n")
        values = {(row["run"], row["metric"]): row for row in final}
        show_rows(
            terminal,
            ["final", *runs],
            [(name, *(_format_final(values.get((run, name))) for run in runs)) for name in metrics],
        )


def _show_lines(terminal: Terminal, files: Sequence[LinesOfFile]) -> None:
    free_lines = MOST_LINES
    for file in files:
        if not free_lines:
            break
        terminal.write("\n")
        terminal.write_line(
            f"{clean(file['path'])}: {' -> '.join(map(clean, file['runs']))}", "bold"
        )
        if file["why"]:
            terminal.write(f"  {clean(file['why'])}\n")
        shown = (file["diff"] or [])[:free_lines]
        free_lines -= len(shown)
        for line in shown:
            terminal.write("  ")
            terminal.write_line(clean(line), _STYLES.get(line[:1], ""))
    unshown = sum(len(file["diff"] or ()) for file in files) - (MOST_LINES - free_lines)
    if unshown:
        terminal.write(f"\nand {unshown:,} more lines; --to FILE writes all lines\n")


def _format_final(row: Final | None) -> str:
    if row is None:
        return "-"
    step_text = (
        f" at step {row['step']:,}" if row["step"] is not None and row["metric"] != "step" else ""
    )
    return format_number(row["value"]) + step_text
