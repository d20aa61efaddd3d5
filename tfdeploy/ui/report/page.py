"""Write the report of a run as one HTML page. The functions are pure.

The page has no script and loads nothing; its content security policy forbids both. The page is
light or dark, as the reader's browser asks. All text of programs and hosts is sanitised and
escaped.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterable, Mapping
from html import escape
from itertools import chain

from tfdeploy import __version__
from tfdeploy.model.answers.samples import labelled_values
from tfdeploy.model.events import Event
from tfdeploy.model.manifest import PAGE
from tfdeploy.model.report.run_report import Chart, RunReport, collect_attempts, report_charts
from tfdeploy.model.status.task_status import TaskView
from tfdeploy.text.row_values import outcome_words, run_seconds
from tfdeploy.ui.amounts import format_bytes, format_count, format_duration, format_number
from tfdeploy.ui.plain import describe_event
from tfdeploy.ui.report.charts import draw_chart, draw_timeline
from tfdeploy.ui.sanitise import clean

# The maximum number of events on the page. Older events are only counted.
MOST_EVENTS = 2000
# A live page reloads after this many seconds.
REFRESH_S = 10
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action "
    "'none'"
)
_STYLE = """
:root{color-scheme:light dark;--fg:#1c1e21;--bg:#fff;--dim:#6a7078;--line:#dfe3e8;--card:#f6f7f9;
--good:#1a7f37;--bad:#c62828;--warn:#9a6700;
--c0:#1f6feb;--c1:#d1570b;--c2:#1a7f37;--c3:#a63fb3;
--c4:#b08800;--c5:#0e8a8a;--c6:#c2255c;--c7:#57606a}
@media (prefers-color-scheme:dark){
:root{--fg:#e6e8eb;--bg:#15171a;--dim:#98a0aa;--line:#31363d;--card:#1d2024;
--good:#56d364;--bad:#ff7b72;--warn:#e3b341;
--c0:#6cb0ff;--c1:#ff9d57;--c2:#56d364;--c3:#db8bf0;
--c4:#e3c341;--c5:#4fd6d6;--c6:#ff8fab;--c7:#aab2bc}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:24px;font:15px/1.5 system-ui,sans-serif;
color:var(--fg);background:var(--bg)}
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 8px}
h3{font-size:14px;margin:0 0 4px}
.dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
pre,code,td.m{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:10px;
overflow-x:auto;margin:6px 0}
table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600;color:var(--dim)}
th,td{padding:3px 12px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right}td.n{white-space:nowrap;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
.charts{display:grid;gap:20px;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr))}
.chart{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:10px}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--dim)}
.grid{stroke:var(--line)}
.line polyline{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}
.line circle{fill:currentColor}.many{color:var(--c0);opacity:.45}.many:hover{opacity:1}
.legend{margin:4px 0 0;font-size:13px}.key{margin-right:14px}
.key::before{content:"";display:inline-block;width:10px;height:10px;border-radius:2px;
margin-right:5px;background:currentColor}.key b,.key{font-weight:500}
.bar rect{fill:var(--c7)}.bar.good rect{fill:var(--good)}
.bar.bad rect{fill:var(--bad)}.bar.going rect{fill:var(--c0)}
""" + "".join(f".c{number}{{color:var(--c{number})}}" for number in range(8))
# {colour of an event's text: CSS class of its row}
_KINDS = {"red": "bad", "yellow": "warn", "green": "good"}
_STATES = {
    "succeeded": "good",
    "running": "good",
    "failed": "bad",
    "lost": "bad",
    "stopped": "warn",
    "starting": "warn",
}


def report_page(report: RunReport, *, live: bool = False) -> str:
    """Return the report as a whole HTML document. `live`: the page reloads every REFRESH_S seconds
    until the run has ended."""
    view, plan = report.view, report.plan
    refresh = (
        f'<meta http-equiv="refresh" content="{REFRESH_S}">' if live and not view.is_final else ""
    )
    body = [
        _header(report),
        _cause(report),
        html_section("Tasks", _tasks_table(report)),
        html_section("Curves", _curves(report)),
        html_section(
            "Timeline",
            draw_timeline(collect_attempts(report), view.started, view.ended or report.made),
        ),
        html_section("Events", _events_table(report.events, view.started)),
        html_section("Plan", _plan_table(report)),
        html_section("Versions", _versions_table(plan.versions)),
        html_section("To run the program again", f"<pre>{escape(relaunch_command(report))}</pre>"),
        f'<p class="dim">made by tfdeploy {escape(__version__)}, {_utc_time(report.made)}</p>',
    ]
    return html_document(f"{clean(plan.run, 128)}: {view.state}", "".join(body), refresh)


def html_document(title: str, body: str, head: str = "") -> str:
    """Return a whole HTML page with this body. `head`: further elements for the head of the
    page."""
    return (
        f'{PAGE}<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">{head}'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta '
        'name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def relaunch_command(report: RunReport) -> str:
    """Return the command line that launches the program of the run again."""
    plan = report.plan
    command = shlex.join(clean(word, 8192) for word in plan.command)
    return f"tfdeploy launch --mode {plan.mode}" + (f" -- {command}" if command else "")


def html_section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>" if content else ""


def _header(report: RunReport) -> str:
    view, plan = report.view, report.plan
    lasted = run_seconds(view.started, view.ended, report.made)
    hosts = len({task.host for task in plan.tasks})
    facts = [
        f'<b class="{_STATES.get(view.state, "")}">{escape(view.state)}</b>',
        f"{'' if view.is_final else 'for '}{format_duration(lasted)}",
        f"job {html_text(plan.job)}, mode {html_text(plan.mode)}",
        f"{format_count(len(plan.tasks), 'task')} on {format_count(hosts, 'host')}",
        f"began {_utc_time(view.started)}",
        f"by {html_text(plan.operator)}",
    ]
    silent = "".join(
        f'<p class="warn">{html_text(host)} gave no samples: {html_text(error.what)}</p>'
        for host, error in report.errors.items()
    )
    return (
        f"<header><h1>{html_text(plan.run)}</h1><p>{' &middot; '.join(facts)}</p>{silent}</header>"
    )


def _cause(report: RunReport) -> str:
    view = report.view
    if not view.cause:
        return ""
    lines = "\n".join(f"{_time_of_day(line.time)} {clean(line.text)}" for line in report.last_lines)
    shown = (
        f"<p>The last lines of {html_text(view.first_death)}:</p><pre>{escape(lines)}</pre>"
        if lines and view.first_death
        else ""
    )
    return (
        f'<section><h2 class="{"bad" if view.first_death else "warn"}">'
        f"{html_text(view.cause)}</h2>{shown}</section>"
    )


def _tasks_table(report: RunReport) -> str:
    tasks, job_metrics = report.view.tasks, report.view.job_metrics
    metrics = [labelled_values(task.metrics, job_metrics) for task in tasks]
    names = list(dict.fromkeys(chain.from_iterable(metrics)))[:8]
    numbers = ["attempts", "lasted", "step", "loss", *names]
    rows = (
        _task_row(report, task, map(each.get, names))
        for task, each in zip(tasks, metrics, strict=True)
    )
    return html_table(["task", "host", "state", *numbers, "GPUs", "address"], rows, numbers)


def _task_row(report: RunReport, task: TaskView, metrics: Iterable[float | None]) -> str:
    state, kind = task.health or task.state, ""
    if task.outcome:
        state = outcome_words(task.outcome, task.exit_code, task.signal)
    if task.outcome in ("failed", "killed", "lost"):
        kind = "bad"
    elif task.outcome == "succeeded" or state == "running":
        kind = "good"
    lasted = (
        "" if task.started is None else format_duration((task.ended or report.made) - task.started)
    )
    why = (
        f'<br><span class="dim">{html_text(task.reason)}</span>'
        if task.reason and task.reason != report.view.cause
        else ""
    )
    step, loss = format_number(task.step, 9), format_number(task.loss)
    numbers = (str(task.attempt or ""), lasted, step, loss, *map(format_number, metrics))
    cells = "".join(f'<td class="n">{escape(each)}</td>' for each in numbers)
    gpus = ",".join(map(str, task.gpus))
    return (
        f"<tr><td>{html_text(task.task)}</td><td>{html_text(task.host)}</td>"
        f'<td class="{kind}">{html_text(state)}{why}</td>{cells}'
        f'<td>{gpus}</td><td class="m">{html_text(task.address)}</td></tr>'
    )


def _curves(report: RunReport) -> str:
    return draw_charts(
        report_charts(report), run_seconds(report.view.started, report.view.ended, report.made)
    )


def draw_charts(drawn: Iterable[Chart], run_s: float) -> str:
    """Return a chart for each metric; "" if there are no metrics. `run_s`: the duration of the
    run, in seconds."""
    boxes = "".join(
        f'<div class="chart"><h3>{html_text(each.name)}</h3>{draw_chart(each, run_s)}</div>'
        for each in drawn
    )
    return f'<div class="charts">{boxes}</div>' if boxes else ""


def _events_table(events: tuple[Event, ...], began: float) -> str:
    rows: list[str] = []
    last: dict[tuple[str | None, str | None], str] = {}
    for event in events:
        text, style = describe_event(event) if event.kind not in ("step", "transfer") else ("", "")
        about = (event.host, event.task)
        if text and text != last.get(about):
            last[about] = text
            kind = _KINDS.get(style.split(" ")[-1], "")
            offset = event.time - began
            since = f"{'+' if offset >= 0 else '-'}{format_duration(abs(offset))}"
            rows.append(
                f'<tr><td class="n dim">{since}</td><td class="{kind}">{escape(text)}</td></tr>'
            )
    if not rows:
        return ""
    left_out = len(rows) - MOST_EVENTS
    note = f'<p class="dim">{format_count(left_out, "earlier event")} not shown</p>'
    return (note if left_out > 0 else "") + html_table([], rows[-MOST_EVENTS:])


def _plan_table(report: RunReport) -> str:
    plan, protect = report.plan, report.view.protect
    facts = {
        "command": shlex.join(clean(word, 8192) for word in plan.command),
        "release": plan.release,
        "deciding": ", ".join(plan.deciding),
        "flags appended": " ".join(plan.flags_appended),
        "keep": ", ".join(plan.keep),
        "data": ", ".join(f"{name}: {path}" for name, path in plan.data.items()),
        "ports": "protect: "
        f"{protect.levels_text if len(protect.hosts_by_level()) > 1 else protect.used}",
    }
    rows = [*facts.items(), *((role, ", ".join(each)) for role, each in plan.cluster.items())]
    for host, machine in report.machines.items():
        memory = f", {format_bytes(machine.memory)}" if machine.memory else ""
        rows.append((host, f"{machine.cores} cores{memory}"))
    cells = (
        f'<tr><th>{html_text(name)}</th><td class="m">{html_text(value, 16384)}</td></tr>'
        for name, value in rows
        if value
    )
    return html_table([], cells)


def _versions_table(versions_by_host: Mapping[str, Mapping[str, str]]) -> str:
    programs = list(dict.fromkeys(chain.from_iterable(versions_by_host.values())))
    rows = (
        f"<tr><td>{html_text(host)}</td>"
        f"{''.join(f'<td>{html_text(installed.get(name, str()))}</td>' for name in programs)}</tr>"
        for host, installed in versions_by_host.items()
    )
    return html_table(["host", *programs], rows) if versions_by_host else ""


def html_table(heads: Iterable[str], rows: Iterable[str], numbers: Collection[str] = ()) -> str:
    head = "".join(
        f"<th{' class=n' if name in numbers else ''}>{html_text(name, 128)}</th>" for name in heads
    )
    return (
        "<div "
        f'class="wide"><table>{f"<tr>{head}</tr>" if head else ""}{"".join(rows)}</table></div>'
    )


def html_text(text: str | None, max_chars: int = 4096) -> str:
    return escape(clean(text or "", max_chars))


def _utc_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _time_of_day(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds))
