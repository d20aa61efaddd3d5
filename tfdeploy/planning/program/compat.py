"""Decides whether a program gets TensorFlow 1 from `import tensorflow` on hosts with TensorFlow 2.

The module also finds clusters whose addresses are written into the program, and uses of TensorFlow
that cannot work on the hosts. Such uses lead to a refusal of the launch. The module reads syntax
trees and the hosts' facts. On the hosts, the package `runtime` then provides TensorFlow 1 and
replaces the written clusters by the planned cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Cluster, Notes
from tfdeploy.planning.program import hardcoded_cluster
from tfdeploy.planning.source import python2, reached
from tfdeploy.planning.source.parsed_file import file_of
from tfdeploy.planning.source.reached import Reached
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import absent_names, legacy_keras, tf_names_used
from tfdeploy.planning.versions.absent_names import Refusal
from tfdeploy.planning.versions.keras2_only import IN_TF_KERAS, KERAS_3
from tfdeploy.planning.versions.tf1_names import VERSION1, VERSION2, has_name_or_parent
from tfdeploy.planning.versions.tf_names_used import NameUse
from tfdeploy.runtime.old_names import removed_names
from tfdeploy.text.names import fold_names
from tfdeploy.text.units import version_numbers

_SHOWN = 5


@dataclass(frozen=True)
class Compat:
    """Whether the program gets TensorFlow 1, the reason, and what cannot work on the hosts.

    `choice`: the value of TFDEPLOY_TASK_COMPAT for every task. `refusals`: what cannot work,
    with its place and with what the user should do instead. `hardcoded`: the clusters whose
    addresses are written into the program.
    """

    choice: Literal["v1", "none"]
    why: str = ""
    notes: Notes = ()
    refusals: tuple[Refusal, ...] = ()
    hardcoded: tuple[hardcoded_cluster.HardcodedCluster, ...] = ()


def decide_compat(job: Job, program: Program, facts: FactsByHost | None = None) -> Compat:
    """Decide whether the job's program gets TensorFlow 1, and find what cannot work.

    `facts`: the facts of the hosts that run the job. Without facts, TensorFlow 2 and Python 3 are
    assumed.
    """
    hosts = facts or {}
    mode = rules_of(job.mode)
    run = reached.certainly_reached(
        program, has_workers="worker" in mode.usable_roles and not (mode.lead_role or mode.single)
    )
    python2_refusals, python2_notes = _python2_problems(program, run, hosts)
    if not mode.tensorflow:
        return Compat("none", notes=python2_notes, refusals=python2_refusals)
    all_uses = tf_names_used.tensorflow_uses(program)
    uses = [use for use in all_uses if not use.is_guarded]
    choice, why = _choose_compat(job, program, uses, run, hosts)
    version1 = choice == "v1"
    if not version1:
        uses = [use for use in uses if job.compat == "auto" and absent_names.is_recent(use)]
    sure = [use for use in uses if use.is_certain and not use.binds and id(use.node) in run.nodes]
    reached_names = {use.name for use in sure}
    unsure = [use for use in uses if use.name not in reached_names]
    # If the program has code for other TensorFlow versions too (in a `try`, after a version test,
    # or with compat.v1), a refusal also suggests `compat: none`.
    has_fallback = any(use.is_guarded or use.name.startswith("compat.") for use in all_uses)
    missing = absent_names.group_refusals(
        absent_names.find_missing_names(sure, job, hosts), has_fallback=has_fallback
    )
    return Compat(
        choice,
        why,
        (
            *python2_notes,
            *(absent_names.supplied_notes(uses, hosts) if version1 else ()),
            *absent_names.notes(absent_names.find_missing_names(unsure, job, hosts)),
        ),
        (*python2_refusals, *missing, *_missing_keras2_refusals(sure, hosts)),
        hardcoded_cluster.literal_clusters(program),
    )


def refuse_incompatible(compat: Compat, program: Program) -> None:
    """Raise Refused if every run of the program uses something that the hosts lack.

    The error shows the first few such uses, with their places and what to write instead.
    """
    for where, what, instead in compat.refusals[:1]:
        others = [
            f"{at}: {names}" if way == instead else f"{at}: {names} ({way})"
            for at, names, way in compat.refusals[1:]
        ]
        if len(others) > _SHOWN:
            others[_SHOWN:] = [f"and {len(others) - _SHOWN} more"]
        also = f"; also {'; '.join(others)}" if others else ""
        raise Refused(
            f"{program.path or 'the program'} cannot run as it is: {what}{also}",
            where=where,
            next=instead,
        )


def notes(job: Job, compat: Compat, cluster: Cluster) -> Notes:
    """Return the notes on compatibility.

    They say why the program runs as TensorFlow 1, or why not. For each cluster that is written into
    the program, they say whether the plan's cluster replaces that cluster.
    """
    texts = [f"compat {compat.choice}: {compat.why}"] if compat.why else []
    for each in compat.hardcoded if cluster else ():
        effect = "is used (`cluster: program`)"
        if job.cluster != "program":
            effect = "; ".join(hardcoded_cluster.plan_effect_notes(each, cluster))
        texts.append(f"the cluster written at {each.where} {effect}")
    return (*texts, *compat.notes)


def keeps_written_addresses(job: Job, compat: Compat) -> bool:
    """Return whether the tasks listen at addresses that are written into the program.

    Otherwise they listen on the ports of the plan.
    """
    return job.cluster == "program" and bool(compat.hardcoded)


def _choose_compat(
    job: Job, program: Program, uses: Sequence[NameUse], run: Reached, hosts: FactsByHost
) -> tuple[Literal["v1", "none"], str]:
    """Return whether the program runs as TensorFlow 1, and why."""
    if job.compat != "auto":
        return job.compat, f"`compat: {job.compat}`"
    migrated = any(use.name.startswith("compat.v1") for use in uses)
    first = [use for use in uses if _shows_version1(use, run, uses_compat_v1=migrated)]
    second = [use for use in uses if has_name_or_parent(use.name, VERSION2)]
    if program.unread_reason and program.script:
        return (
            "none",
            f"{program.unread_reason}; if the program needs TensorFlow 1, write `compat: v1`",
        )
    if not first:
        reason = "uses no name that only TensorFlow 1 has"
        if migrated:
            reason = "uses tensorflow.compat.v1 itself"
        return "none", f"{program.path} {reason}" if uses else ""
    if hosts and all(
        (version_numbers(each.tensorflow) or KERAS_3) < (2, 0) for each in hosts.values()
    ):
        return "none", "the hosts have TensorFlow 1 itself"
    old = f"tf.{first[0].name} ({first[0].where})"
    if second:
        both = f"{old} of TensorFlow 1 and tf.{second[0].name} ({second[0].where}) of TensorFlow 2"
        return "none", f"the program uses {both}; to run it as TensorFlow 1, write `compat: v1`"
    others = len({use.name for use in first}) - 1
    more = f" and {others} more names" if others > 1 else " and one more name" if others else ""
    return "v1", (
        f"the program uses {old}{more} of TensorFlow 1, so `import tensorflow` gives version 1"
    )


def _shows_version1(use: NameUse, run: Reached, *, uses_compat_v1: bool) -> bool:
    """Return whether this use of a name shows that the program is written for TensorFlow 1.

    `uses_compat_v1`: the program itself uses compat.v1. In such a program, the use of a name that
    TensorFlow 2 lacks counts only if every run of the program executes this use.
    """
    of_version0 = removed_names.is_of_version0(use.name)
    absent = of_version0 or removed_names.replacement_hint(use.name) is not None
    if not absent or absent_names.is_recent(use):
        return of_version0 or has_name_or_parent(use.name, VERSION1)
    return not uses_compat_v1 or (id(use.node) in run.nodes and not use.binds)


def _missing_keras2_refusals(sure: Iterable[NameUse], hosts: FactsByHost) -> Iterator[Refusal]:
    needing = [
        use for use in sure if has_name_or_parent(removed_names.current_name(use.name), IN_TF_KERAS)
    ]
    lacking = legacy_keras.hosts_without_keras_2(hosts.values())
    for use in needing[:1] if lacking else ():
        names = fold_names(each.host for each in lacking)
        what = f"tf.{use.name} needs tf_keras, which is missing on {names}"
        yield use.where, what, legacy_keras.tf_keras_install_command(lacking)


def _python2_problems(
    program: Program, run: Reached, hosts: FactsByHost
) -> tuple[tuple[Refusal, ...], tuple[str, ...]]:
    """Return (refusals, notes) for syntax and built-in functions of Python 2 in the program."""
    if hosts and all((each.python_version or "3").startswith("2") for each in hosts.values()):
        return (), ()
    places = [(where, syntax, where.rpartition(":")[0]) for where, syntax in program.python2]
    sure = tuple(
        (where, f"{syntax} is Python 2, and the hosts run Python 3", _python3_command(syntax, file))
        for where, syntax, file in places
        if file in run.files or not program.modules
    )
    by_name = {
        use.name: use for use in reversed(tf_names_used.uses_of_names(program, python2.BUILTINS))
    }
    later = [(use.where, use.name, file_of(use.node).path) for use in by_name.values()]
    later += [place for place in places if place[2] not in run.files and program.modules]
    return sure, tuple(
        f"{what} at {at} is Python 2 and fails when the program reaches it: "
        f"{_python3_command(what, file)}"
        for at, what, file in later
    )


def _python3_command(what: str, file: str) -> str:
    """Return the command that corrects a file for Python 3. 2to3 leaves tabs as they are."""
    file = shlex.quote(file)
    if what == python2.TABS:
        return f"`expand -i {file} > expanded.py && mv expanded.py {file}`"
    return f"2to3 -w {file}"
