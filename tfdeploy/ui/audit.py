"""Show the result of `tfdeploy audit`: tables of log entries, ports, secrets, versions, and of what
runs have left behind. The input is the result as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfdeploy.model.text.folding import fold_names
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal

# How many characters of a key's fingerprint are shown. --json has the whole fingerprint.
_KEY = len("SHA256:") + 12
Rows = Sequence[Mapping[str, Any]]


def show_audit(terminal: Terminal, answer: Mapping[str, Any]) -> None:
    """Write each section of the audit that has rows. The last line says whether runs have left
    something behind."""
    _show_entries(terminal, answer["entries"])
    _show_ports(terminal, answer["ports"])
    admitted = [(row["host"], row["address"], row["of"]) for row in answer["admitted"]]
    _section(terminal, ["host", "has admitted", "of"], admitted)
    _section(
        terminal, ["secret", "host", "run", "delivered", "forgotten"], _secrets(answer["secrets"])
    )
    _section(
        terminal,
        ["host", "tfdeploy", "agent", "python", "tensorflow"],
        _versions(answer["versions"]),
    )
    _section(
        terminal,
        ["host", "log", "what is wrong with it"],
        [(f["host"], f["line"], f["what"]) for f in answer["faults"]],
    )
    _section(
        terminal,
        ["host", "left", "where"],
        [(r["host"], r["kind"], r["path"]) for r in answer["left"]],
    )
    unasked = [row["host"] for row in answer["errors"]]
    if unasked:
        terminal.write(
            terminal.paint(
                f"not known of {fold_names(map(clean, unasked))}: no answer", "bold yellow"
            )
            + "\n"
        )
    if answer["left"]:
        terminal.write(terminal.paint("something is left", "bold red") + "\n")
    elif answer["ok"]:
        terminal.write("nothing is left\n")


def _show_entries(terminal: Terminal, entries: Rows) -> None:
    """Write the entries of the hosts' audit logs. A command has an entry on each of its hosts.
    These entries become one row with all these hosts."""
    folded: dict[tuple[object, ...], list[str]] = {}
    for row in entries:
        by = (
            f"{str(row['key'])[:_KEY]}{'' if row['key_by'] == 'sshd' else ' (it says)'}"
            if row["key"]
            else ""
        )
        second = str(row["time"])[:19].replace("T", " ") + "Z"
        key = (
            second,
            row["operator"] or "?",
            row["from"],
            by,
            row["verb"],
            row["run"] or row["job"],
            row["outcome"],
        )
        folded.setdefault(key, []).append(row["host"])
    shown = [
        (time, operator, client, key, verb, run_or_job, outcome, fold_names(dict.fromkeys(hosts)))
        for (time, operator, client, key, verb, run_or_job, outcome), hosts in folded.items()
    ]
    _section(terminal, ["time", "operator", "from", "key", "verb", "of", "outcome", "hosts"], shown)


def _show_ports(terminal: Terminal, ports: Rows) -> None:
    _section(
        terminal,
        ["host", "port", "of", "protect"],
        [(p["host"], p["port"], p["task"] or "mesh", p["protect"]) for p in ports],
    )


def _secrets(rows: Rows) -> list[tuple[object, ...]]:
    return [
        (row["name"], row["host"], row["run"], _word(row["delivered"]), _word(row["forgotten"]))
        for row in rows
    ]


def _word(value: bool | None) -> str:
    return "?" if value is None else "yes" if value else "no"


def _versions(answer: Mapping[str, Any]) -> list[tuple[object, ...]]:
    own_row: list[tuple[object, ...]] = [("this machine", answer["operator"], "", "", "")]
    rows: list[tuple[object, ...]] = [
        (
            row["host"],
            row["tfdeploy"],
            str(row["agent"])[:12],
            row["python"],
            row["tensorflow"] or "",
        )
        for row in answer["hosts"]
    ]
    return own_row + rows if rows else []


def _section(terminal: Terminal, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    listed = list(rows)
    if listed:
        show_rows(terminal, headers, listed)
        terminal.write("\n")
