"""Describes a plan for --dry-run, as rows of text that the caller lays out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tfdeploy.model.modes import RULES
from tfdeploy.model.plan import Notes, PartPlan, Plan
from tfdeploy.planning import interpreters
from tfdeploy.text.units import format_bytes, format_count, list_first

_SHOWN = 6
COLUMNS = ("task", "host", "address", "gpus", "why")


class Description(NamedTuple):
    """What --dry-run shows of a plan. Each of `rows` has one text for each of COLUMNS."""

    heading: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    commands: tuple[tuple[str, str], ...]  # pairs: task, its command line quoted for a shell
    notes: Notes


def describe_plan(plan: Plan) -> Description:
    """Return those facts of the plan that an operator should check before the launch."""
    return Description(
        heading=(
            ("run", plan.run),
            ("job", plan.job),
            ("mode", plan.mode),
            ("release", plan.release),
            *((("starts in", plan.cwd),) if plan.cwd else ()),
            ("python", interpreters.python_summary(plan)),
            ("training", f"continues from {plan.resume}" if plan.resume else "starts from zero"),
            ("ends with", _deciding_tasks_text(plan)),
            ("on a death", _after_failure_text(plan)),
            ("restart", plan.restart),
            ("on a stall", _after_stall_text(plan)),
            ("mesh", ", ".join(f"{host.host}:{host.mesh_port}" for host in plan.hosts)),
        ),
        rows=tuple(
            (task.task, task.host, task.address or "-", gpus_text(task.gpus), task.why)
            for task in plan.tasks
        ),
        commands=tuple((task.task, shlex.join(task.argv)) for task in plan.tasks),
        notes=(*plan.notes, *_part_notes(plan)),
    )


def _part_notes(plan: Plan) -> Iterator[str]:
    """Yield a note on each split data set: the part that each worker gets."""
    for name, parts in plan.parts.items():
        if any(part.files is None for part in parts):
            yield (
                f"data {name}: each of {len(parts)} workers uses the part that is on its host "
                "(--no-sync)"
            )
            continue
        shown = [f"{part.task} on {part.host} {_part_size_text(part)}" for part in parts[:_SHOWN]]
        more = (
            f"; and {len(parts) - _SHOWN} more, of which the largest has "
            f"{_part_size_text(max(parts, key=_part_bytes))}"
            if len(parts) > _SHOWN
            else ""
        )
        yield f"data {name} is split into {len(parts)} parts: {'; '.join(shown)}{more}"


def _part_bytes(part: PartPlan) -> int:
    return part.bytes or 0


def _part_size_text(part: PartPlan) -> str:
    return f"{format_count(part.files or 0, 'file')}, {format_bytes(_part_bytes(part))}"


def _deciding_tasks_text(plan: Plan) -> str:
    return list_first(plan.deciding, _SHOWN) + (
        ": all of them" if len(plan.deciding) > _SHOWN else ""
    )


def _after_failure_text(plan: Plan) -> str:
    kept = f"continues from the files in {', '.join(plan.keep)}" if plan.keep else ""
    next_launch = f"the next launch {kept or 'starts from zero, because the job has no `keep`'}"
    if not plan.restart_max:
        return f"{RULES[plan.mode].on_death}; tfdeploy ends the run, and {next_launch}"
    # A restarted task finds the files of its earlier attempts, because the run's folder is not
    # removed between attempts.
    within_run = (
        kept or f"finds the files of its earlier attempts in the run's own folder; {next_launch}"
    )
    return f"{RULES[plan.mode].on_death}; a restarted task {within_run}"


def _after_stall_text(plan: Plan) -> str:
    if not plan.stall_after_s:
        return "stalls are not detected (stall.after is 0)"
    done = (
        "tfdeploy ends the task that causes the stall, as if this task had failed"
        if plan.stall_action == "restart"
        else "tfdeploy reports the stall and ends no task"
    )
    return f"after {plan.stall_after_s:g} s without output, CPU use or network traffic, {done}"


def gpus_text(gpus: tuple[int, ...]) -> str:
    return ",".join(map(str, gpus)) or "-"
