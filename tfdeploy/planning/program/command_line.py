"""Builds the command of each task from the job's command: fills placeholders and appends flags.

The command is a tuple of arguments. No shell parses it on the way to the host, so nothing is
quoted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job, RoleRule
from tfdeploy.model.modes import ROLES, rules_of
from tfdeploy.model.plan import cluster_json
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.flags.flag_definitions import Flags
from tfdeploy.planning.source.entry_point import PYTHON, Command, flags_end_index
from tfdeploy.text import placeholders


def placeholder_values(layout: Layout, seat: Seat, job: Job, run: str) -> dict[str, str]:
    """Return {placeholder: value} for those placeholders that describe a task and its cluster.

    In lists of hosts, commas separate the addresses. Modes with ranks, such as plain, have other
    placeholders, because they have no TensorFlow cluster.
    """
    mode, cluster = rules_of(job.mode), layout.cluster
    called = job.roles.get(seat.role, RoleRule()).called
    of_task = {"job_name": called or seat.role, "task_index": str(seat.index), "run_id": run}
    if mode.ranks:
        return {
            **of_task,
            "num_workers": str(len(layout.seats)),
            **ranks.rank_placeholders(layout, seat),
        }
    return {
        **of_task,
        **{
            f"{role}_hosts": layout.joined_endpoints.get(role, "")
            for role in ("ps", "worker", "chief")
        },
        "cluster": layout.cluster_json,
        "issync": "1" if "synchronous" in mode.traits else "0",
        "num_ps": str(len(cluster.get("ps", ()))),
        "num_workers": "1" if mode.single else str(len(cluster.get("worker", ()))),
    }


def renamed_role_values(
    layout: Layout, name_by_role: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return {role: {placeholder: value}}, for placeholders whose values contain names of roles.

    In these values, each role has the name that the program uses for it. The values are only for
    flags that the program defines. `name_by_role`: {role: the program's name for it}. If it is
    empty, the result is empty too.
    """
    cluster = cluster_json(
        {name_by_role.get(role, role): each for role, each in layout.cluster.items()}
    )
    return {
        role: {"job_name": name_by_role.get(role, role), "cluster": cluster}
        for role in (ROLES if name_by_role else ())
    }


def task_command(
    job: Job,
    facts: HostFacts,
    placeholder_values: Mapping[str, str],
    added_flags: Flags,
    placeholder_values_in_flags: Mapping[str, str],
) -> Command:
    """Return the command of one task on one host. Raises UsageError for an unknown placeholder.

    `placeholder_values`: {placeholder: value}. `added_flags`: the flags to append.
    `placeholder_values_in_flags`: {placeholder: its value in `added_flags`}, if that differs from
    its value in the job's command."""
    first, *others = (
        placeholders.fill_placeholders(word, placeholder_values) for word in job.command
    )
    if first in PYTHON:
        first = facts.python or first
    elif first.startswith("~/"):
        first = posixpath.join(facts.home, first[2:])
    command = (first, *others)
    # A program reads everything after a `--` as positional arguments, so flags go before it.
    end = flags_end_index(job.command)
    flags = (
        word
        for flag in added_flags
        for word in flag.arguments({**placeholder_values, **placeholder_values_in_flags})
    )
    return (*command[:end], *flags, *command[end:])
