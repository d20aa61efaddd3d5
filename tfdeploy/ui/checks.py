"""What `tfdeploy check` found, for people: what is wrong and what mends it, hosts with the same trouble together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tfdeploy.model.folding import fold_names
from tfdeploy.model.link_groups import LinkGroup, group
from tfdeploy.model.rows import CheckedHostRow, LinkRow
from tfdeploy.ui.amounts import count
from tfdeploy.ui.reports import write_wrapped
from tfdeploy.ui.terminal import Terminal

MOST_GROUPS = 30  # of links; --json has all
_HOST = "\0"  # stands for a host's own name in a text


class _Trouble(NamedTuple):
    check: str
    level: str
    detail: str
    fix: str


def show_checks(terminal: Terminal, hosts: Sequence[CheckedHostRow], links: Sequence[LinkRow], *, quiet: bool = False) -> None:
    """Errors first, then warnings, then links, then one line about all."""
    troubles = _by_trouble(hosts)
    for trouble, names in sorted(troubles.items(), key=lambda each: each[0].level):
        subject = f"{fold_names(names)} {trouble.check}"
        _show(terminal, subject, trouble.level == "error", *(_filled(text, names) for text in (trouble.detail, trouble.fix)))
    groups = group(links)
    for each in groups[:MOST_GROUPS]:
        _show(terminal, each.subject, not each.ok, f"{each.why} ({_ports(each)})", each.fix)
    if len(groups) > MOST_GROUPS:
        terminal.write(f"and {len(groups) - MOST_GROUPS} more: `tfdeploy check --json` has all links\n")
    if not quiet or troubles or groups:
        terminal.write(_summary(terminal, hosts, links, troubles))


def _by_trouble(hosts: Sequence[CheckedHostRow]) -> dict[_Trouble, list[str]]:
    """What is wrong -> the hosts where it is, in order of appearance."""
    found: dict[_Trouble, list[str]] = {}
    for host in hosts:
        own = re.compile(rf"(?<![\w.-]){re.escape(host['host'])}(?![\w.-]*\w)")
        for each in host["checks"]:
            if not each["ok"]:
                texts = (own.sub(_HOST, each["detail"]), own.sub(_HOST, each["fix"] or ""))
                found.setdefault(_Trouble(each["check"], each["level"], *texts), []).append(host["host"])
    return found


def _filled(text: str, names: Sequence[str]) -> str:
    return text.replace(_HOST, fold_names(names))


def _show(terminal: Terminal, subject: str, is_error: bool, what: str, fix: str) -> None:
    write_wrapped(terminal, f"{subject}: ", what, "red" if is_error else "yellow")
    if fix:
        write_wrapped(terminal, "    mend: ", fix)


def _ports(found: LinkGroup) -> str:
    """Many hosts have many ports; a few are enough to look at a firewall."""
    shown = ", ".join(map(str, found.ports[:4])) + (", ..." if len(found.ports) > 4 else "")
    return f"port {shown}" if len(found.ports) == 1 else f"ports {shown}"


def _summary(
    terminal: Terminal, hosts: Sequence[CheckedHostRow], links: Sequence[LinkRow], troubles: dict[_Trouble, list[str]]
) -> str:
    pairs = {(each["from"], each["to"]) for each in links}
    bad = {(each["from"], each["to"]) for each in links if not each["ok"]}
    errors = sum(len(names) for trouble, names in troubles.items() if trouble.level == "error")
    warnings = sum(len(names) for trouble, names in troubles.items() if trouble.level != "error")
    found = [
        count(number, word) for number, word in ((errors, "error"), (warnings, "warning"), (len(bad), "broken link")) if number
    ]
    slow = any(each["ok"] and each["why"] for each in links)
    said = ", ".join(found) or ("slow links" if slow else "nothing wrong")
    style = "red" if errors or bad else "yellow" if warnings or slow else "green"
    return f"{count(len(hosts), 'host')}, {count(len(pairs), 'link')}: " + terminal.paint(said, style) + "\n"
