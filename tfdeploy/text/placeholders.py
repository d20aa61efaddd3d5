"""Check and fill the placeholders of `command` and `env`: {job_name}, {data.digits}. `{{` and `}}`
stand for literal braces.

`config` uses this module to check the names, and `planning` uses it to fill in the values. All
functions are pure. Every error is a UsageError that says how to correct the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tfdeploy.errors import UsageError
from tfdeploy.text.nexts import most_similar

NAMES: dict[str, str] = {
    "ps_hosts": "addresses of the parameter servers, host:port with commas between",
    "worker_hosts": "addresses of the workers, host:port with commas between",
    "chief_hosts": "addresses of the chief, host:port",
    "cluster": 'the whole cluster as JSON: {"ps": ["host:port"], "worker": [...]}',
    "job_name": "the task's role: ps, worker, chief, evaluator",
    "task_index": "the task's number in its role, from 0",
    "issync": "1 in mode sync, else 0",
    "num_ps": "the number of parameter servers",
    "num_workers": "the number of workers",
    "run_id": "the run's id",
    "rank": "in mode plain, the worker's number in the run, from 0",
    "world_size": "in mode plain, the number of workers",
    "local_rank": "in mode plain, the worker's number on its host, from 0",
    "chief_host": "in mode plain, the address of the host of rank 0",
    "chief_port": "in mode plain, the port of this host on which rank 0 may listen",
}
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def known_placeholders(data: Iterable[str], keep: Iterable[str]) -> tuple[str, ...]:
    """Return the names of all placeholders for a job with these data sets and keep paths."""
    return (*NAMES, *(f"data.{name}" for name in data), *(f"keep.{path}" for path in keep))


def placeholder_names(text: str) -> tuple[str, ...]:
    """Return the names of the placeholders in the text, in order and with repetitions. Raises
    UsageError for an unpaired brace."""
    tokens = list(_TOKEN.finditer(text))
    for token in tokens:
        if token[0] in ("{", "}"):
            raise _unpaired_brace_error(token[0], text)
    return tuple(token[1] for token in tokens if token[1] is not None)


def check_placeholders(text: str, known_names: Iterable[str]) -> None:
    """Raise UsageError if the text is malformed or contains a placeholder whose name is not in
    `known_names`."""
    used = placeholder_names(text)
    existing = tuple(known_names) if used else ()
    for name in used:
        if name not in existing:
            raise _unknown_placeholder_error(name, text, existing)


def fill_placeholders(text: str, value_by_placeholder: Mapping[str, str]) -> str:
    """Return the text with every placeholder replaced. Raises UsageError as `check_placeholders`
    does; the known names are those of `value_by_placeholder`."""
    check_placeholders(text, value_by_placeholder)
    return _TOKEN.sub(
        lambda token: token[0][0] if token[1] is None else value_by_placeholder[token[1]], text
    )


def _unpaired_brace_error(brace: str, text: str) -> UsageError:
    kind = "unclosed brace" if brace == "{" else "closing brace without an opening one"
    return UsageError(
        f"{kind} in {text!r}",
        next=f"close the placeholder, or write {brace * 2} for a plain {brace}",
    )


def _unknown_placeholder_error(name: str, text: str, known_names: tuple[str, ...]) -> UsageError:
    near = most_similar(name, known_names, 0.7)
    data = name.partition("data.")[2]
    if data and not near:
        defined = [f"{{{other}}}" for other in known_names if other.startswith("data.")]
        meant = f"did you mean {defined[0]}? otherwise " if len(defined) == 1 else ""
        remedy = f"{meant}define the data set in the job file, as in data: {{{data}: ./{data}}}"
    else:
        hint = near and f"did you mean {{{near}}}? "
        remedy = f"{hint}use one of {' '.join(f'{{{other}}}' for other in known_names)}"
    return UsageError(
        f"unknown placeholder {{{name}}} in {text!r}",
        next=f"{remedy}, or write {{{{{name}}}}} for plain braces",
    )
