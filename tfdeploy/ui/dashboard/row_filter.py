"""Parse the filter of the dashboard, which selects rows, lines of the log and events.

A filter is a list of terms separated by spaces; all terms must match. `worker` and `worker:[0-2]`
select tasks; `@n[3-5]` and `n3` select the tasks of hosts; `stalled` selects the tasks in that
state. The log and the events are searched for any other word, for a quoted phrase, and for the name
of a state that no task has now. If such a term is a valid regular expression, it is used as one.
`!` before a term selects everything that the term does not select.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from tfdeploy.errors import UsageError
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import AGAIN, SLOW, TaskTrouble
from tfdeploy.text.names import group_by_key, match_names
from tfdeploy.text.user_regexes import compile_user_pattern

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


class FilterTerm(NamedTuple):
    """One term of the filter. Exactly one of these fields is set: `tasks` (the tasks that the term
    selects), `state` (the term selects the tasks in this state), `text_test` (the term searches
    text). `is_negated`: True if `!` stands before the term."""

    is_negated: bool = False
    tasks: frozenset[str] | None = None
    state: str | None = None
    text_test: Finder | None = None


class Filter(NamedTuple):
    terms: tuple[FilterTerm, ...] = ()

    @property
    def selects_tasks(self) -> bool:
        """Return True if at least one term of the filter selects tasks. Otherwise the table shows
        the rows of all tasks."""
        return any(term.text_test is None for term in self.terms)

    def passes(self, task: str, states: frozenset[str]) -> bool:
        """Return True if the task passes the filter. Only terms that select tasks are applied, and
        the task must match each of them. `states`: all states of the task, see
        `filterable_states`."""
        selecting = (term for term in self.terms if term.text_test is None)
        return all(
            (term.state in states if term.tasks is None else task in term.tasks) != term.is_negated
            for term in selecting
        )

    @property
    def text_test(self) -> Finder | None:
        """Return a function that tests whether a text matches all terms that search text; None if
        there is no such term."""
        wanted = [
            (term.text_test, term.is_negated) for term in self.terms if term.text_test is not None
        ]
        if not wanted:
            return None
        return lambda text: all((find(text) is None) == without for find, without in wanted)


def parse_filter(
    text: str, progress: RunProgress, present_states: Collection[str] = STATES
) -> Filter:
    """Parse the filter in `text`. Never raises.

    `present_states`: the states that at least one task has now. A state selects tasks only if it is
    one of these states, or if the term is negated. Otherwise it is searched for in the log, as is a
    word that names no state, task or host. A word that is no valid regular expression is searched
    for literally.
    """
    return Filter(
        tuple(
            _parse_term(match, progress, present_states)
            for match in _TERM.finditer(text)
            if match[2] or match[3]
        )
    )


def filterable_states(mark: TaskTrouble, progress: RunProgress, name: str) -> frozenset[str]:
    """Return the words of the filter that select this task by its state, such as "running" and
    "slow"."""
    task = progress.tasks[name]
    special = {SLOW: "slow", AGAIN: "restarted"}.get(mark.rank, "")
    trouble = "trouble" if mark.needs_attention else ""
    health = progress.health(task) or ""
    return frozenset((task.state, health, task.outcome or "", special, trouble))


def _parse_term(
    match: re.Match[str], progress: RunProgress, present_states: Collection[str]
) -> FilterTerm:
    without, word = bool(match[1]), match[3]
    if word is None:
        return FilterTerm(without, text_test=_text_finder(match[2]))
    hosts = group_by_key((task.host, name) for name, task in progress.tasks.items())
    roles = group_by_key((name.partition(":")[0], name) for name in progress.tasks)
    if word.startswith("@"):
        matched_hosts = _matching_names(word[1:], hosts, {}) if len(word) > 1 else set(hosts)
        return FilterTerm(
            without, tasks=frozenset(task for host in matched_hosts for task in hosts.get(host, ()))
        )
    if word.lower() in STATES and (without or word.lower() in present_states):
        return FilterTerm(without, state=word.lower())
    named = set(hosts.get(word, ())) or _matching_names(word, progress.tasks, roles)
    return (
        FilterTerm(without, tasks=frozenset(named))
        if named
        else FilterTerm(without, text_test=_text_finder(word))
    )


def _matching_names(
    word: str, names: Mapping[str, object], groups: Mapping[str, list[str]]
) -> set[str]:
    try:
        return match_names(word, list(names), groups, flag="/", kind="task")
    except UsageError:
        return set()


def _text_finder(text: str) -> Finder:
    """Return a function that searches for `text`, ignoring case. The function uses `text` as a
    regular expression; if `text` is not a valid expression, it is searched for literally."""
    try:
        return compile_user_pattern(text, re.IGNORECASE).search
    except ValueError:
        return re.compile(re.escape(text), re.IGNORECASE).search
