"""Show the result of `tfdeploy setup`: the Python environment or the error of each host, and the
differences between hosts.

The input is the rows of the output of --json, so that text and JSON always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfdeploy.model.answers.failures import prefix_with_host
from tfdeploy.model.output.rows import SetupRow
from tfdeploy.text.names import fold_names, group_equal
from tfdeploy.ui.amounts import format_bytes, format_count, format_duration
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal


def show_setup(terminal: Terminal, hosts: Sequence[SetupRow], differences: Iterable[str]) -> None:
    """Write a row for each host whose environment was created. Then write one line for all hosts
    that already had it, and one line for each distinct error, with all hosts that have it. At the
    end, write `differences`, lines about what differs between the environments."""
    made = [host for host in hosts if host["ok"] and host["made"]]
    rows = [
        (
            host["host"],
            format_count(len(host["packages"]), "package"),
            host["python_version"],
            host["by"],
            format_bytes(host["bytes_sent"]),
            format_duration(host["seconds"] or 0.0),
        )
        for host in made
    ]
    show_rows(terminal, ["host", "setup", "python", "by", "sent", "took"], rows)
    already_set_up = {
        host[
            "host"
        ]: f"{format_count(len(host['packages']), 'package')}, Python {host['python_version']}"
        for host in hosts
        if host["ok"] and not host["made"]
    }
    for names, environment in group_equal(already_set_up):
        terminal.write_line(f"{clean(fold_names(names))}: had it already ({clean(environment)})")
    errors = {host["host"]: str(host["error"]) for host in hosts if not host["ok"]}
    for names, error in group_equal(errors):
        first, *more = error.splitlines() or ["failed"]
        terminal.write_line(clean(prefix_with_host(fold_names(names), first)), "red")
        for line in more:
            terminal.write_line(clean(line))
    for text in differences:
        terminal.write(f"{terminal.paint('differs:', 'yellow')} {clean(text)}\n")
