"""Write a comparison of runs as one HTML page: the differences, the final values, and for each
metric a chart with the curves of all runs. The functions are pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.model.report.code_lines import LinesOfFile
from tfdeploy.model.report.compare import ComparedRun, Difference, Final, comparison_charts
from tfdeploy.ui.amounts import format_number
from tfdeploy.ui.report.page import charts, document, section, table, text_of

_STYLES = {"+": "good", "-": "bad", "@": "dim"}


def comparison_page(
    runs: Sequence[ComparedRun],
    differs: Sequence[Difference],
    final: Sequence[Final],
    lines: Sequence[LinesOfFile] = (),
) -> str:
    names = [run.plan.run for run in runs]
    body = [
        f"<header><h1>{text_of(', '.join(names), 2000)}</h1></header>",
        section("Differs", _differences(names, differs)),
        section("Code", "".join(map(_lines, lines))),
        section("Final values", _finals(names, final)),
        section("Curves", _curves(runs)),
    ]
    return document(f"{len(names)} runs compared", "".join(body))


def _differences(names: Sequence[str], differs: Sequence[Difference]) -> str:
    if not differs:
        return "<p>command, env, code, plan and versions are the same</p>"
    rows = (
        f"<tr><td>{text_of(row['what'])}</td><td>{text_of(row['key'])}</td>"
        + "".join(
            f'<td class="m">{"-" if value is None else text_of(value)}</td>'
            for value in row["values"]
        )
        + "</tr>"
        for row in differs
    )
    return table(["in", "", *names], rows)


def _lines(file: LinesOfFile) -> str:
    first_run, second_run = file["runs"]
    head = f"<h3>{text_of(file['path'])}: {text_of(first_run)} to {text_of(second_run)}</h3>"
    if file["diff"] is None:
        return f"{head}<p>{text_of(file['why'])}</p>"
    return head + "<pre>" + "\n".join(map(_line, file["diff"])) + "</pre>"


def _line(line: str) -> str:
    style = _STYLES.get(line[:1])
    return f'<span class="{style}">{text_of(line)}</span>' if style else text_of(line)


def _finals(names: Sequence[str], final: Sequence[Final]) -> str:
    values = {(row["run"], row["metric"]): row for row in final}
    metrics = dict.fromkeys(row["metric"] for row in final)
    rows = (
        f"<tr><td>{text_of(metric)}</td>"
        + "".join(
            "<td "
            f'class="n">{format_number(final_value["value"]) if (final_value := values.get((run, metric))) else "-"}</td>'
            for run in names
        )
        + "</tr>"
        for metric in metrics
    )
    return table(["metric", *names], rows, numbers=names) if metrics else ""


def _curves(runs: Sequence[ComparedRun]) -> str:
    drawn = comparison_charts(runs)
    ends = [piece[-1][0] for each in drawn for line in each.lines for piece in line.pieces]
    return charts(drawn, max(ends)) if ends else ""
