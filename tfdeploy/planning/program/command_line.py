"""The argv of one task: interpreter, placeholders, and the flags that the program defines.

A command is a tuple of arguments from here to the host, without quotes.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from tfdeploy.model import placeholders
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job, Mode
from tfdeploy.model.modes import rules
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.program import flags
from tfdeploy.planning.program.flag_types import last_name
from tfdeploy.planning.program.flags import Flag
from tfdeploy.planning.program.source import PYTHON, Program, own_end

_READERS = ("TFConfigClusterResolver", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "RunConfig")
_NAME_THEM = "name what it needs in the command, as in `python train.py {job_name} {task_index}`"


@dataclass(frozen=True)
class Appended:
    """The flags that every task's command gets, and why. `own`: those that the command has itself."""

    flags: tuple[Flag, ...]
    note: str
    own: tuple[Flag, ...] = ()


def appended(job: Job, program: Program) -> Appended:
    """By the job's `flags`: none, the classic four, or those that the program defines."""
    named = [name for word in job.command for name in placeholders.names(word) if name in flags.CLASSIC]
    if named:
        return Appended((), f"no flags appended: the command names {{{named[0]}}} itself")
    if job.flags == "none":
        return Appended((), "no flags appended: `flags: none`")
    mode_rules = rules(job.mode)
    if mode_rules.ranks:
        return Appended((), f"no flags appended: mode {job.mode} tells the program by {', '.join(ranks.VARIABLES)}")
    if job.flags is None and mode_rules.single:
        return Appended((), f"no flags appended: mode {job.mode} has no cluster to tell of")
    if job.flags is None and not mode_rules.takes_flags:
        return Appended((), f"no flags appended: mode {job.mode} tells the program by TF_CONFIG, or `flags: auto`")
    chosen = flags.classic() if job.flags == "classic" else flags.defined(program)
    own = tuple(flag for flag in chosen if _in_command(flag, job.command[: own_end(job.command)]))
    left = tuple(flag for flag in chosen if flag not in own)
    return Appended(left, _note(job, program, left, own), own)


def values(layout: Layout, seat: Seat, mode: Mode | None, run: str) -> dict[str, str]:
    """The values of the placeholders that describe a task; hosts are joined by commas. Ranks have no cluster of TensorFlow."""
    mode_rules, cluster = rules(mode), layout.cluster
    if mode_rules.ranks:
        counted = {"job_name": seat.role, "task_index": str(seat.index), "num_workers": str(len(layout.seats)), "run_id": run}
        return {**counted, **ranks.values(layout, seat)}
    return {
        "ps_hosts": layout.joined.get("ps", ""),
        "worker_hosts": layout.joined.get("worker", ""),
        "chief_hosts": layout.joined.get("chief", ""),
        "job_name": seat.role,
        "task_index": str(seat.index),
        "issync": "1" if "synchronous" in mode_rules.traits else "0",
        "num_ps": str(len(cluster.get("ps", ()))),
        "num_workers": "1" if mode_rules.single else str(len(cluster.get("worker", ()))),
        "run_id": run,
    }


def argv(job: Job, facts: HostFacts, given: Mapping[str, str], added: tuple[Flag, ...]) -> tuple[str, ...]:
    """The command of one task on one host. Raises UsageError on an unknown placeholder."""
    first, *rest = (placeholders.fill(word, given) for word in job.command)
    if first in PYTHON:
        first = facts.python or first
    elif first.startswith("~/"):
        first = posixpath.join(facts.home, first[2:])
    words = (first, *rest)
    end = own_end(job.command)  # after a `--` the program would read them as positional arguments
    return (*words[:end], *(word for flag in added for word in flag.arguments(given[flag.name])), *words[end:])


def _in_command(flag: Flag, command: tuple[str, ...]) -> bool:
    spellings = {flag.spelling, flag.spelling.lstrip("-"), flag.off} - {""}
    return any(word.startswith("-") and ({word.split("=")[0], word.split("=")[0].lstrip("-")} & spellings) for word in command)


def _note(job: Job, program: Program, left: tuple[Flag, ...], own: tuple[Flag, ...]) -> str:
    kept = f"; the command gives {', '.join(flag.spelling for flag in own)} itself" if own else ""
    listed = " ".join(flag.spelling for flag in left)
    if job.flags == "classic":
        return f"flags appended by `flags: classic`: {listed or 'none'}{kept}"
    if program.unread:
        return f"no flags appended: {program.unread}; name them in the command ({{job_name}} ...) or say `flags: classic`"
    if listed:
        lacking = _no_index({flag.name for flag in (*left, *own)})
        return f"flags appended because {program.path} defines them: {listed}{kept}{lacking}"
    if own:
        return f"no flags appended{kept}"
    none = f"no flags appended: {program.path} defines none of {' '.join('--' + name for name in flags.NAMES)}; it has TF_CONFIG"
    alike = rules(job.mode).takes_flags and not _reads_tf_config(program)
    return none if not alike else f"{none}, which it does not seem to read: {_NAME_THEM}"


def _no_index(names: set[str]) -> str:
    """A warning where no flag gives the index: all tasks of a role would act as the first, and wait for ever."""
    if "job_name" not in names or "task_index" in names:
        return ""
    return "; none of them is the task's index: name all that it needs in the command, as in `--ITS_FLAG={task_index}`"


def _reads_tf_config(program: Program) -> bool:
    """Whether it names TF_CONFIG, or a class of TensorFlow that reads it."""
    for tree in program.trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value == "TF_CONFIG":
                return True
            if isinstance(node, ast.Attribute | ast.Name) and last_name(node) in _READERS:
                return True
    return False
