"""Show the results of tfdeploy's commands to people: status, runs, sync, fetch, stop, exec and the
plan.

The input is a RunView or the rows of the command's JSON, so that text and JSON always agree.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfdeploy.model.answers.samples import labelled_values
from tfdeploy.text.names import fold_errors, fold_names, group_equal, without_address
from tfdeploy.text.row_values import outcome_words, parse_moment, run_seconds, unread_metrics_text
from tfdeploy.ui.amounts import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_roughly,
    list_first,
)
from tfdeploy.ui.feed_tree import draw_feed_tree
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cell_width, cut_to_width, show_rows, table_lines
from tfdeploy.ui.terminal import Terminal, run_style

if TYPE_CHECKING:
    from tfdeploy.model.output.rows import ExecRow, ExpectedRow, FetchRow, RunRow, StopRow, SyncRow
    from tfdeploy.model.status.run_status import RunView
    from tfdeploy.model.status.task_status import TaskView

# The columns of the table of tasks that are shown even if they are empty.
_ALWAYS_SHOWN = ("task", "host", "state")
# The two results of `tfdeploy stop` for a host that are no error.
STOPPED = "stopped"
HAD_ENDED = "had ended before"
# The maximum number of lines for one tree of a broadcast. A broadcast may have several trees, each
# for a share of the data.
MOST_FEED_LINES = 12
# The maximum number of paths that are listed for one host.
_MOST_PATHS = 5
# The minimum width, in columns, of the text beside a label. If there is less room, the text is
# indented by 2.
_NARROWEST = 20


def show_status(
    terminal: Terminal,
    view: RunView,
    now: float,
    add_options: Callable[[str], str] = str,
    last_lines: Sequence[str] = (),
    as_of: str = "",
    advice: str = "",
) -> None:
    """Write the state of a run: a heading, a row for each task, the cause, unreachable hosts, and
    what to type next.

    `now`: UTC seconds. `add_options`: adds the operator's own options, such as `-i FILE`, to a
    command that is shown, so that the operator can type this command. `last_lines`: the last lines
    of the task that died first. `as_of`: text that says when these lines were read, such as "as of
    the last fetch"; "" if just now. `advice`: what to change after a failure, see
    `failure_advice`."""
    lasted = format_duration(run_seconds(view.started, view.ended, now))
    duration = f" {'after' if view.is_final else 'for'} {lasted}"
    heading = f"{view.run}  {view.mode}  "
    _write_line(terminal, heading, view.state, run_style(view.state), duration)
    _show_tasks(terminal, view)
    if view.cause:
        style = "red" if view.state in ("failed", "lost", "running") else ""
        write_wrapped(terminal, "cause: ", view.cause, style)
    if last_lines and as_of:
        _write_line(terminal, "its last lines, ", f"{as_of}:")
    for line in last_lines:
        _write_line(terminal, "  | ", line)
    if view.unreachable:
        _write_line(terminal, "cannot be reached: ", fold_names(view.unreachable), "yellow")
    for task in view.tasks:
        if task.log_lost_bytes:
            what = (
                f"{format_bytes(task.log_lost_bytes)}, because {clean(task.host)}'s disk was full"
            )
            _write_line(terminal, f"missing from the log of {clean(task.task)}: ", what, "yellow")
    _show_protection(terminal, view)
    unread = {task.task: unread_metrics_text(task.unread) for task in view.tasks if task.unread}
    for tasks, text in group_equal(unread):
        write_wrapped(terminal, f"{clean(fold_names(tasks))}: ", text, "yellow")
    show_left_files(terminal, view.left_files, view.cwd)
    if view.state == "failed":
        command = f"`tfdeploy logs {view.run} -n 100`"
        if view.first_death:
            command = f"`tfdeploy logs {view.run} --task {view.first_death} -n 100`"
        write_wrapped(terminal, "next: ", add_options(command) + advice)
    elif view.state == "lost" and view.unreachable:
        command = f"`tfdeploy exec --limit {shlex.quote(fold_names(view.unreachable))} -- true`"
        write_wrapped(terminal, "next: ", add_options(command))


def _show_protection(terminal: Terminal, view: RunView) -> None:
    """Write how the ports of the tasks are protected, but only if the hosts differ in this
    protection or a port is open to all. Also write which callers the hosts admitted or rejected."""
    protect, levels = view.protect, view.protect.hosts_by_level()
    listens = any(task.address for task in view.tasks)
    is_open = protect.asked == "auto" and "none" in levels and listens
    if len(levels) > 1 or is_open:
        write_wrapped(terminal, "protect: ", protect.levels_text, "red" if is_open else "")
    for open_port in view.open_ports:
        write_wrapped(terminal, "open: ", open_port, "red")
    for caller in view.admitted:
        text = f"{caller.address} of {caller.member}, on {caller.host}"
        write_wrapped(terminal, "admitted: ", text)
    for caller in view.not_admitted:
        write_wrapped(terminal, "not admitted: ", caller.address_refusal_text, "yellow")


def _show_tasks(terminal: Terminal, view: RunView) -> None:
    """Write the table of tasks. If the cause of the run already contains the reason for a task's
    state, the reason is not repeated. If several tasks share a reason, or if the table would be too
    wide, all reasons are written below the table."""
    headers, rows, reasons = task_table(view)
    if reasons:
        widest = max(map(cell_width, table_lines(headers, rows, None)))
        if len({*reasons.values()}) == len(reasons) and widest <= (terminal.width or widest):
            reasons = {}
        else:
            headers, rows = headers[:-1], [row[:-1] for row in rows]
    show_rows(terminal, headers, rows)
    for tasks, reason in group_equal(reasons):
        write_wrapped(terminal, f"{clean(fold_names(tasks))}: ", reason)


def task_table(view: RunView) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """Return the headers and rows of the table of tasks, and {task: reason for its state}.

    Columns in which all cells are empty are left out.
    """
    reasons = {
        task.task: reason for task in view.tasks if (reason := _unrepeated_reason(view, task))
    }
    table = [_task_row(task, view.job_metrics, reasons.get(task.task, "")) for task in view.tasks]
    kept = [
        name
        for name in (table[0] if table else _ALWAYS_SHOWN)
        if name in _ALWAYS_SHOWN or any(row[name] for row in table)
    ]
    return kept, [[row[name] for name in kept] for row in table], reasons


def _unrepeated_reason(view: RunView, task: TaskView) -> str | None:
    """Return the text that the table shows as the reason for a task's state; None if there is no
    text.

    The reason is not shown if the run's cause, which stands near the table, already contains it:
    for the task that died first, and for tasks that were ended for that cause. If such a task was
    stopped after a restart, the text says why it was restarted."""
    cause = view.cause or ""
    is_first = task.task == view.first_death and (task.reason or "") in cause
    if task.reason != cause and not is_first:
        return task.reason
    return task.began_again if task.outcome == "stopped" else None


def task_state(task: TaskView) -> str:
    """Return one text for the state of a task, such as 'unreachable', 'failed: 1', 'killed: 9' or
    'running': its health if it has one, else its outcome if it has one, else its state."""
    if task.health:
        return task.health
    return outcome_words(task.outcome, task.exit_code, task.signal) if task.outcome else task.state


def show_left_files(
    terminal: Terminal, files_by_host: Mapping[str, Sequence[str]], cwd: str = ""
) -> None:
    """Write which files the program left outside the folders that the job file's `keep` names, and
    the folders to add to `keep`. `files_by_host`: {host: paths}. `cwd`: the folder of the code in
    which the program started."""
    for host, paths in files_by_host.items():
        shown = list_first([clean(path, 60) for path in paths], _MOST_PATHS)
        _write_line(terminal, f"left on {clean(host)}: ", shown)
    tops = {clean(_top_folder(path, cwd), 60) for paths in files_by_host.values() for path in paths}
    if listed_tops := ", ".join(sorted(tops - {""})):
        _write_line(
            terminal,
            "to carry these folders over to later runs, add to `keep`: ",
            listed_tops,
            "bold",
        )


def _top_folder(path: str, cwd: str) -> str:
    """Return the path of the folder that is directly below `cwd` and contains the file `path`; ""
    if there is no such folder."""
    inside = f"{cwd}/" if cwd and path.startswith(f"{cwd}/") else ""
    folder, below, _ = path.removeprefix(inside).partition("/")
    return inside + folder if below else ""


def show_runs(terminal: Terminal, rows: Iterable[RunRow], now: float) -> None:
    """Write a row for each run, with the time since its start and its duration. `now`: UTC
    seconds."""
    shown = [
        (
            r["run"],
            r["state"] or "?",
            *_began_and_lasted(r, now),
            r["tasks"],
            fold_names(r["hosts"]),
            r["who"],
        )
        for r in rows
    ]
    show_rows(terminal, ["run", "state", "began", "took", "tasks", "hosts", "by"], shown)


def _began_and_lasted(row: RunRow, now: float) -> tuple[str, str]:
    if row["started"] is None:
        return "", ""
    began, ended = parse_moment(row["started"], now), row["ended"]
    lasted = run_seconds(began, parse_moment(ended, now) if ended else None, now)
    shown = format_duration(lasted) if ended or row["live"] else ""
    return f"{format_roughly(now - began)} ago", shown


def show_sync(terminal: Terminal, hosts: Sequence[SyncRow]) -> None:
    """Write a row for each host that failed or received data, and one line for all hosts that had
    everything already."""
    figures = {
        h["host"]: (format_bytes(h["bytes_sent"]), format_duration(h["seconds"] or 0))
        for h in hosts
    }
    rows = [
        (h["host"], "ok", *figures[h["host"]], "") for h in hosts if h["ok"] and h["bytes_sent"]
    ]
    for names, error in _folded_errors(hosts):
        rows.append((names, "failed", *figures.get(names, ("", "")), error))
    show_rows(terminal, ["host", "sync", "sent", "took", ""], rows)
    _write_unchanged(terminal, hosts, "had everything already")


def show_forecast(
    terminal: Terminal,
    hosts: Sequence[SyncRow],
    broadcasts: Sequence[ExpectedRow],
    sent_bytes_by_host: Mapping[str, Mapping[str, int]],
) -> None:
    """Write what a sync would send: a row for each host, then which host would send to which.
    `sent_bytes_by_host`: {host: {name of the code or data set: bytes}}."""
    rows = [
        (
            h["host"],
            format_bytes(h["bytes_sent"]),
            _sent_parts(sent_bytes_by_host.get(h["host"], {})),
            _sender_host_or_blank(h["from"]) or "here",
            "",
        )
        for h in hosts
        if h["ok"] and h["bytes_sent"]
    ]
    rows += [(names, "failed", "", "", error) for names, error in _folded_errors(hosts)]
    show_rows(terminal, ["host", "would get", "of", "from", ""], rows)
    _write_unchanged(terminal, hosts, "would get nothing")
    for each in broadcasts:
        text = f"{format_bytes(each['bytes'])} to {format_count(each['hosts'], 'host')}"
        _write_line(terminal, f"{clean(each['what'])}: ", text)
        for stripe in range(each["stripes"]):
            feeds = [
                (_sender_host_or_blank(f["from"]), f["to"])
                for f in each["feeds"]
                if f["stripe"] == stripe
            ]
            for line in draw_feed_tree(
                feeds, width=(terminal.width or 100) - 2, max_lines=MOST_FEED_LINES
            ):
                _write_line(terminal, "  ", line)


def _write_unchanged(terminal: Terminal, hosts: Iterable[SyncRow], text: str) -> None:
    """Write one line for all hosts to which nothing is sent."""
    unchanged = [h["host"] for h in hosts if h["ok"] and not h["bytes_sent"]]
    if unchanged:
        _write_line(terminal, f"{fold_names(unchanged)}: ", text)


def _folded_errors(hosts: Sequence[SyncRow]) -> Iterable[tuple[str, str]]:
    return fold_errors({h["host"]: h["error"] or "" for h in hosts if not h["ok"]}).items()


def _sent_parts(sent_bytes_by_item: Mapping[str, int]) -> str:
    """Return what a host would receive: 'code', or for several items 'code 8.0 kB, data digits 3.1
    MB'."""
    parts = {
        what: f"{what} {format_bytes(size)}" for what, size in sent_bytes_by_item.items() if size
    }
    return ", ".join(parts if len(parts) < 2 else parts.values())


def _sender_host_or_blank(name: str | None) -> str:
    """Return the name of the sending host; "" for this machine."""
    return "" if name in (None, "control") else str(name)


def show_fetch(terminal: Terminal, hosts: Sequence[FetchRow]) -> None:
    """Write a row for each host, then the files and links that were not fetched from the hosts."""
    rows = [
        (
            h["host"],
            "ok" if h["ok"] else "failed",
            h["files"],
            format_bytes(h["bytes_received"]),
            format_duration(h["seconds"] or 0),
            h["error"],
        )
        for h in hosts
    ]
    show_rows(terminal, ["host", "fetch", "files", "came", "took", ""], rows)
    for h in hosts:
        for paths, why in (
            (
                h["newer_here"],
                "files that were not overwritten, because they changed on this machine",
            ),
            (h["left_there"], "links that were not created, because they lead out of the folder"),
            (h["unreadable"], "files that were not fetched, because they cannot be read there"),
        ):
            if paths:
                label = f"{clean(h['host'])}: {why}: "
                _write_line(terminal, label, list_first(paths, _MOST_PATHS), "yellow")


def show_stop(terminal: Terminal, hosts: Sequence[StopRow]) -> None:
    """Write one line for all hosts with the same result, then a row for each process that is still
    alive."""
    for names, result in group_equal({h["host"]: _stop_result(h) for h in hosts}):
        style = "" if result in (STOPPED, HAD_ENDED) else "bold red"
        _write_line(terminal, f"{fold_names(names)}: ", result, style)
    rows = [
        (h["host"], each["pid"], each["state"], each["command"])
        for h in hosts
        for each in h["survivors"]
    ]
    show_rows(terminal, ["host", "alive", "state", "command"], rows)


def show_exec(out: Terminal, err: Terminal, hosts: Sequence[ExecRow]) -> None:
    """Write a heading and the sanitised output for each host. Hosts with equal results have one
    heading together."""
    errors = {h["host"]: h["error"] or "" for h in hosts}
    results = {
        h["host"]: (h["exit_code"], h["stdout"], h["stderr"], without_address(errors[h["host"]]))
        for h in hosts
    }
    for names, (code, stdout, stderr, folded) in group_equal(results):
        shown, many, error = fold_names(names), "", errors[names[0]]
        if len(names) > 1:
            many, error = f" ({format_count(len(names), 'host')})", folded
        exit_text = "" if code == 0 else f" exit {code}" if code is not None else " no exit code"
        heading = (
            cut_to_width(f"--- {shown}{many}", (out.width or 10_000) - len(exit_text)) + exit_text
        )
        out.write_line(heading, "bold red" if exit_text or error else "bold")
        # No line is cut: the output may be a file that a script reads.
        out.write("".join(clean(line, 8 * len(line)) + "\n" for line in stdout.splitlines()))
        lines = (*stderr.splitlines(), *(f"[{shown}] {line}" for line in error.splitlines()))
        err.write("".join(err.paint(clean(line, 8 * len(line)), "red") + "\n" for line in lines))


def show_plan(
    terminal: Terminal,
    heading: Iterable[tuple[str, str]],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    commands: Iterable[tuple[str, str]],
    notes: Iterable[str],
) -> None:
    """Write the result of `launch --dry-run`: the heading, a row for each task, the commands and
    the notes. `heading`: (label, text). `commands`: (task, command)."""
    for name, text in heading:
        write_wrapped(terminal, f"{name + ':':<12}", text, "bold")
    terminal.write("\n")
    show_rows(terminal, columns, rows)
    terminal.write("\n")
    for task, command in commands:
        terminal.write(f"{terminal.paint(clean(task), 'bold')}: {clean(command)}\n")
    for text in notes:
        terminal.write(f"{terminal.paint('note:', 'yellow')} {clean(text)}\n")


def _task_row(task: TaskView, job_metrics: Sequence[str], reason: str) -> dict[str, str]:
    values = labelled_values(task.metrics, job_metrics)
    return {
        "task": task.task,
        "host": task.host,
        "state": task_state(task),
        "pid": str(task.pid or "") if task.state in ("starting", "running") else "",
        "gpus": ",".join(map(str, task.gpus)),
        "attempt": str(task.attempt) if task.restarts else "",
        "step": "" if task.step is None else str(task.step),
        "loss": format_number(task.loss),
        "metrics": ", ".join(f"{name} {format_number(value)}" for name, value in values.items()),
        "address": task.address,
        "reason": reason,
    }


def _stop_result(host: StopRow) -> str:
    if host["survivors"]:
        number = len(host["survivors"])
        return f"{number:,} process{'' if number == 1 else 'es'} still alive"
    if not host["ok"]:
        return host["error"] or "failed"
    return HAD_ENDED if host["had_ended"] else STOPPED


def write_wrapped(terminal: Terminal, label: str, text: str, style: str = "") -> None:
    """Write the label and the whole text, wrapped to the width of the terminal. The text is
    sanitised here; the label must already be sanitised."""
    width = terminal.width or 1 << 30
    label = cut_to_width(label, width - 1)
    indent = " " * (len(label) if width - len(label) >= _NARROWEST else 2)
    lines = textwrap.wrap(
        clean(text), width, initial_indent=label, subsequent_indent=indent, break_on_hyphens=False
    )
    for line in lines or [label]:
        body = cut_to_width(line[len(label) :], width - len(label))
        terminal.write(label + terminal.paint(body, style) + "\n")
        label = indent


def _write_line(
    terminal: Terminal, label: str, text: str, style: str = "", after: str = ""
) -> None:
    """Write `label`, `text` and `after` as one line, cut to the width of the terminal. `style`: the
    style of `text`. `text` is sanitised here; `label` and `after` must already be sanitised."""
    width = terminal.width or 1 << 30
    label = cut_to_width(label, width)
    text = cut_to_width(clean(text), width - len(label))
    after = cut_to_width(after, width - len(label) - len(text))
    terminal.write(label + terminal.paint(text, style) + after + "\n")
