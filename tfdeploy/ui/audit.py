"""Show the result of `tfdeploy audit` as tables: entries of the hosts' audit logs, ports, secrets,
versions, and processes and files that no run needs any more. The input is the JSON of the
result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfdeploy.text.names import fold_names
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal

# How many characters of a key's fingerprint are shown. --json has the whole fingerprint.
_KEY = len("SHA256:") + 12
_NOTHING_LEFT = (
    "no run has left anything behind: no process, no secret, no incomplete or foreign file "
    "(live runs: `tfdeploy runs`; files of ended runs: `tfdeploy clean --dry-run`)"
)
Rows = Sequence[Mapping[str, Any]]


def show_audit(terminal: Terminal, answer: Mapping[str, Any]) -> None:
    """Write each section of the audit that has rows. The last line says whether runs have left
    something behind."""
    _show_entries(terminal, answer["entries"])
    ports = [{**row, "task": row["task"] or "mesh"} for row in answer["ports"]]
    _show_section(
        terminal, {"host": "host", "port": "port", "of": "task", "protect": "protect"}, ports
    )
    admitted = {"host": "host", "has admitted": "address", "of": "of"}
    _show_section(terminal, admitted, answer["admitted"])
    _show_secrets(terminal, answer["secrets"])
    _show_versions(terminal, answer["versions"])
    faults = {"host": "host", "log": "line", "what is wrong with the log": "what"}
    _show_section(terminal, faults, answer["faults"])
    _show_section(terminal, {"host": "host", "left": "kind", "where": "path"}, answer["left"])
    unasked = [row["host"] for row in answer["errors"]]
    if unasked:
        names = fold_names(map(clean, unasked))
        terminal.write_line(f"no answer from {names}, so this report is incomplete", "bold yellow")
    if answer["left"]:
        terminal.write_line("something is left", "bold red")
    elif answer["ok"]:
        terminal.write_line(_NOTHING_LEFT)


def _show_entries(terminal: Terminal, entries: Rows) -> None:
    """Write the entries of the hosts' audit logs. A command writes an entry on each of its hosts;
    the table shows these entries as one row that names all the hosts."""
    hosts: dict[tuple[object, ...], dict[str, None]] = {}
    for row in entries:
        client_key = (row["key"] or "")[:_KEY]
        if client_key and row["key_by"] != "sshd":
            client_key += " (it says)"
        entry = (
            row["time"][:19].replace("T", " ") + "Z",
            row["operator"] or "?",
            row["from"],
            client_key,
            row["verb"],
            row["run"] or row["job"],
            row["outcome"],
        )
        hosts.setdefault(entry, {})[row["host"]] = None
    headers = ["time", "operator", "from", "key", "verb", "of", "outcome", "hosts"]
    _show_rows(terminal, headers, [(*entry, fold_names(names)) for entry, names in hosts.items()])


def _show_secrets(terminal: Terminal, secrets: Rows) -> None:
    texts = {None: "?", True: "yes", False: "no"}
    keys = ("delivered", "forgotten")
    rows = [{**row, **{key: texts[row[key]] for key in keys}} for row in secrets]
    columns = {"secret": "name", **{key: key for key in ("host", "run", *keys)}}
    _show_section(terminal, columns, rows)


def _show_versions(terminal: Terminal, versions: Mapping[str, Any]) -> None:
    keys = ("host", "tfdeploy", "agent", "python", "tensorflow")
    rows = [{**row, "agent": row["agent"][:12]} for row in versions["hosts"]]
    if rows:
        rows.insert(0, {"host": "this machine", "tfdeploy": versions["operator"]})
    _show_section(terminal, {key: key for key in keys}, rows)


def _show_section(terminal: Terminal, key_by_header: Mapping[str, str], rows: Rows) -> None:
    """Write `rows` as a table. `key_by_header`: {header of a column: the key of its values in a
    row}."""
    cells = [[row.get(key) for key in key_by_header.values()] for row in rows]
    _show_rows(terminal, list(key_by_header), cells)


def _show_rows(
    terminal: Terminal, headers: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    if rows:
        show_rows(terminal, headers, rows)
        terminal.write("\n")
