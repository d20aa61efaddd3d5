"""Show the result of `tfdeploy check`: each problem, all hosts that have this problem, and how to
correct it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfdeploy.model.output.check import LinkGroup, group_links
from tfdeploy.model.output.rows import CheckedHostRow, CheckRow, LinkRow
from tfdeploy.text.names import fold_names, replace_own_name
from tfdeploy.text.nexts import merge_next_commands
from tfdeploy.ui.amounts import format_count
from tfdeploy.ui.reports import write_wrapped
from tfdeploy.ui.terminal import Terminal

# The maximum number of groups of links that are shown (a link is the connection from one host to
# another). --json has all links.
MOST_GROUPS = 30
# In a text about a host, this placeholder replaces the host's name. So equal texts about different
# hosts can be grouped.
_HOST = "\0"
_BOUND = re.compile(f"(--(?:limit|exclude) ){_HOST}")


class _Problem(NamedTuple):
    """A failed check that one or more hosts have in common. `detail`: the text of the check, with a
    placeholder for the host's name and without the host's address, so that hosts with the same
    problem can be grouped."""

    check: str
    level: str
    detail: str


def show_check_problems(
    terminal: Terminal,
    hosts: Sequence[CheckedHostRow],
    links: Sequence[LinkRow],
    *,
    quiet: bool = False,
) -> None:
    """Write errors, warnings, problems of links, and a line that sums them up. `quiet`: write
    nothing if there is no problem."""
    problems = _group_by_problem(hosts)
    for problem, checks_by_host in sorted(problems.items(), key=lambda each: each[0].level):
        first, *others = checks_by_host.values()
        names = fold_names(checks_by_host)
        detail = problem.detail.replace(_HOST, names) if others else first["detail"]
        is_error = problem.level == "error"
        _show_problem(
            terminal, f"{names} {problem.check}", is_error, detail, _fixes(checks_by_host)
        )
    groups = group_links(links)
    for each in groups[:MOST_GROUPS]:
        _show_problem(
            terminal, each.subject, not each.ok, f"{each.why} ({_ports_text(each)})", [each.fix]
        )
    if (unshown := len(groups) - MOST_GROUPS) > 0:
        terminal.write(
            f"and {unshown} more groups of links: `tfdeploy check --json` has all links\n"
        )
    if not quiet or problems or groups:
        terminal.write(_summary_line(terminal, hosts, links, problems))


def _group_by_problem(hosts: Sequence[CheckedHostRow]) -> dict[_Problem, dict[str, CheckRow]]:
    """Group failed checks by their problem. Return {problem: {host: its failed check}}, in order of
    appearance."""
    rows_by_problem: dict[_Problem, dict[str, CheckRow]] = {}
    for host in hosts:
        for each in host["checks"]:
            if not each["ok"]:
                detail = replace_own_name(each["detail"], host["host"], _HOST)
                rows_by_problem.setdefault(_Problem(each["check"], each["level"], detail), {})[
                    host["host"]
                ] = each
    return rows_by_problem


def _fixes(rows_by_host: Mapping[str, CheckRow]) -> list[str]:
    """Return the lines that say how to correct the problem. If the advice for the hosts differs
    only by the host's name, return one line. Otherwise return one line for each group of hosts with
    equal advice."""
    fixes = {host: each["fix"] or "" for host, each in rows_by_host.items()}
    texts = {replace_own_name(fix, host, _HOST) for host, fix in fixes.items()}
    if len(texts) > 1 or len(fixes) == 1:
        return merge_next_commands(fixes)
    names = fold_names(fixes)
    quoted = _BOUND.sub(lambda match: match[1] + shlex.quote(names), texts.pop())
    return [quoted.replace(_HOST, names)]


def _show_problem(
    terminal: Terminal, subject: str, is_error: bool, problem: str, fixes: Iterable[str]
) -> None:
    write_wrapped(terminal, f"{subject}: ", problem, "red" if is_error else "yellow")
    for fix in filter(None, fixes):
        write_wrapped(terminal, "    fix: ", fix)


def _ports_text(group: LinkGroup) -> str:
    """Return at most four ports of the group as text. Four ports are enough for an operator who
    examines a firewall."""
    shown = ", ".join(map(str, group.ports[:4])) + (", ..." if len(group.ports) > 4 else "")
    return f"port {shown}" if len(group.ports) == 1 else f"ports {shown}"


def _summary_line(
    terminal: Terminal,
    hosts: Sequence[CheckedHostRow],
    links: Sequence[LinkRow],
    problems: Mapping[_Problem, Mapping[str, CheckRow]],
) -> str:
    pairs = {(each["from"], each["to"]) for each in links}
    broken_links = {(each["from"], each["to"]) for each in links if not each["ok"]}
    numbers = Counter({"broken link": len(broken_links)})
    for problem, affected in problems.items():
        numbers[problem.level] += len(affected)
    counts = [
        format_count(numbers[word], word)
        for word in ("error", "warning", "broken link")
        if numbers[word]
    ]
    slow = any(each["ok"] and each["why"] for each in links)
    verdict = ", ".join(counts) or ("slow links" if slow else "nothing wrong")
    style = "yellow" if counts or slow else "green"
    if numbers["error"] or broken_links:
        style = "red"
    heading = f"{format_count(len(hosts), 'host')}, {format_count(len(pairs), 'link')}: "
    return f"{heading}{terminal.paint(verdict, style)}\n"
