"""Write a comparison of runs as one HTML page: the differences, the final values, and for each
metric a chart with the curves of all runs. The functions are pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.model.report.compare import (
    ComparedRun,
    Difference,
    Final,
    LinesOfFile,
    comparison_charts,
)
from tfdeploy.ui.amounts import format_number
from tfdeploy.ui.report.page import draw_charts, html_document, html_section, html_table, html_text

_STYLES = {"+": "good", "-": "bad", "@": "dim"}


def comparison_page(
    runs: Sequence[ComparedRun],
    differs: Sequence[Difference],
    final: Sequence[Final],
    lines: Sequence[LinesOfFile],
) -> str:
    names = [run.plan.run for run in runs]
    body = [
        f"<header><h1>{html_text(', '.join(names), 2000)}</h1></header>",
        html_section("Differs", _differences_table(names, differs)),
        html_section("Code", "".join(map(_file_diff, lines))),
        html_section("Final values", _final_values_table(names, final)),
        html_section("Curves", _charts(runs)),
    ]
    return html_document(f"{len(names)} runs compared", "".join(body))


def _differences_table(names: Sequence[str], differs: Sequence[Difference]) -> str:
    if not differs:
        return "<p>the runs have the same command, env, code, plan and versions</p>"
    rows = (
        f"<tr><td>{html_text(row['what'])}</td><td>{html_text(row['key'])}</td>"
        + "".join(
            f'<td class="m">{"-" if value is None else html_text(value)}</td>'
            for value in row["values"]
        )
        + "</tr>"
        for row in differs
    )
    return html_table(["in", "", *names], rows)


def _file_diff(file: LinesOfFile) -> str:
    first_run, second_run = file["runs"]
    head = f"<h3>{html_text(file['path'])}: {html_text(first_run)} to {html_text(second_run)}</h3>"
    if file["diff"] is None:
        return f"{head}<p>{html_text(file['why'])}</p>"
    return head + "<pre>" + "\n".join(map(_diff_line, file["diff"])) + "</pre>"


def _diff_line(line: str) -> str:
    style = _STYLES.get(line[:1])
    return f'<span class="{style}">{html_text(line)}</span>' if style else html_text(line)


def _final_values_table(names: Sequence[str], final: Sequence[Final]) -> str:
    values = {(row["run"], row["metric"]): row for row in final}
    metrics = dict.fromkeys(row["metric"] for row in final)
    rows = (
        f"<tr><td>{html_text(metric)}</td>"
        + "".join(
            '<td class="n">'
            f"{format_number(row['value']) if (row := values.get((run, metric))) else '-'}</td>"
            for run in names
        )
        + "</tr>"
        for metric in metrics
    )
    return html_table(["metric", *names], rows, numbers=names) if metrics else ""


def _charts(runs: Sequence[ComparedRun]) -> str:
    drawn = comparison_charts(runs)
    ends = [piece[-1][0] for each in drawn for line in each.lines for piece in line.pieces]
    return draw_charts(drawn, max(ends)) if ends else ""
