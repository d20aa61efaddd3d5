"""Parse the filter of the dashboard, one language for rows, log and events: terms separated by
spaces, all of which must hold.

`worker`, `worker:[0-2]`: tasks; `@n[3-5]`, `n3`: hosts; `stalled`: tasks in that state, if there
are any; any other word, or a "quoted phrase": text of the log and of the events, a regular
expression if it is one. `!` before a term: all except those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tfdeploy.errors import UsageError
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import AGAIN, SLOW, Mark
from tfdeploy.model.text.name_patterns import matched
from tfdeploy.model.text.patterns import compiled

STATES = frozenset(
    [
        "running",
        "starting",
        "pending",
        "ended",
        "stalled",
        "unreachable",
        "failed",
        "killed",
        "lost",
        "stopped",
        "succeeded",
        "slow",
        "restarted",
        "trouble",
    ]
)
_TERM = re.compile(r'(!?)(?:"([^"]*)"?|(\S+))')
Finder = Callable[[str], object]


@dataclass(frozen=True)
class Term:
    """One term. One of the four is set."""

    without: bool = False
    tasks: frozenset[str] | None = None
    state: str | None = None
    finds: Finder | None = None


@dataclass(frozen=True)
class Filter:
    terms: tuple[Term, ...] = ()

    @property
    def of_tasks(self) -> bool:
        """True if any term is about tasks; else all rows are shown."""
        return any(term.finds is None for term in self.terms)

    def passes(self, task: str, states: frozenset[str]) -> bool:
        """True if a task in these states passes the terms that are about tasks."""
        for term in self.terms:
            if term.finds is None:
                hit = task in term.tasks if term.tasks is not None else term.state in states
                if hit == term.without:
                    return False
        return True

    @property
    def finds(self) -> Finder | None:
        """Return the test whether a text passes the terms that are about text; None: all do."""
        wanted = [(term.finds, term.without) for term in self.terms if term.finds is not None]
        if not wanted:
            return None
        return lambda text: all((find(text) is None) == without for find, without in wanted)


def parse(text: str, progress: RunProgress, held: Collection[str] = STATES) -> Filter:
    """Return the filter. Never raises: what is not a pattern is a word, and so is a state that is
    not among `held`, the states of tasks."""
    return Filter(
        tuple(
            _term(match, progress, held) for match in _TERM.finditer(text) if match[2] or match[3]
        )
    )


def states_of(mark: Mark, progress: RunProgress, name: str) -> frozenset[str]:
    """Return all words of STATES that hold for a task."""
    task = progress.tasks[name]
    states = {task.state, progress.health(task) or "", task.outcome or ""}
    states |= {"slow"} if mark.rank == SLOW else {"restarted"} if mark.rank == AGAIN else set()
    return frozenset(states | ({"trouble"} if mark.trouble else set()))


def _term(match: re.Match[str], progress: RunProgress, held: Collection[str]) -> Term:
    without, word = bool(match[1]), match[3]
    if word is None:
        return Term(without, finds=_finder(match[2]))
    hosts: dict[str, list[str]] = {}
    roles: dict[str, list[str]] = {}
    for task in progress.tasks.values():
        hosts.setdefault(task.host, []).append(task.task)
        roles.setdefault(task.task.partition(":")[0], []).append(task.task)
    if word.startswith("@"):
        matched_hosts = _names(word[1:], hosts, {}) if len(word) > 1 else set(hosts)
        return Term(
            without, tasks=frozenset(task for host in matched_hosts for task in hosts.get(host, ()))
        )
    if word.lower() in STATES and (without or word.lower() in held):
        return Term(without, state=word.lower())
    named = set(hosts.get(word, ())) or _names(word, progress.tasks, roles)
    return Term(without, tasks=frozenset(named)) if named else Term(without, finds=_finder(word))


def _names(word: str, names: Mapping[str, object], groups: Mapping[str, list[str]]) -> set[str]:
    try:
        return matched(word, list(names), groups, flag="/", kind="task")
    except UsageError:
        return set()


def _finder(text: str) -> Finder:
    """Return a search for `text` as a regular expression, or literally while it is not a valid one;
    upper or lower case."""
    try:
        return compiled(text, re.IGNORECASE).search
    except ValueError:
        return re.compile(re.escape(text), re.IGNORECASE).search
