"""Decides whether `import tensorflow` gives a program TensorFlow 1 although hosts have version 2.

Also finds what then cannot work, so that the launch is refused, and clusters that are written into
the program. Uses syntax trees and the hosts' facts. The runtime on the hosts does the replacing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tfdeploy.errors import Refused
from tfdeploy.model.cluster import Cluster
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.text.folding import fold_names
from tfdeploy.model.text.units import version_numbers
from tfdeploy.planning.program import hardcoded_cluster
from tfdeploy.planning.source import python2, reached
from tfdeploy.planning.source.reached import Reached
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import absent_names, legacy_keras, tf_names_used
from tfdeploy.planning.versions.absent_names import Refusal
from tfdeploy.planning.versions.keras2_only import IN_TF_KERAS, KERAS_3
from tfdeploy.planning.versions.tf1_names import VERSION1, VERSION2, among
from tfdeploy.planning.versions.tf_names_used import Use
from tfdeploy.runtime.old_names import removed_names

_SHOWN = 5


@dataclass(frozen=True)
class Compat:
    """Whether the program runs as TensorFlow 1, why, and what cannot work on the hosts.

    `choice`: the value of TFDEPLOY_TASK_COMPAT for every task. `refusals`: (where it is used, what
    is missing, what to do instead). `hardcoded`: the clusters that are written into the program.
    """

    choice: Literal["v1", "none"]
    why: str = ""
    notes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    hardcoded: tuple[hardcoded_cluster.HardcodedCluster, ...] = ()


def decide(job: Job, program: Program, facts: Mapping[str, HostFacts] | None = None) -> Compat:
    """Decide whether the job's program runs as TensorFlow 1, and find what cannot work.

    `facts`: the facts of the hosts that run the job. Without facts, TensorFlow 2 and Python 3 are
    assumed.
    """
    hosts = facts or {}
    mode = rules(job.mode)
    run = reached.reached(
        program, workers="worker" in mode.takes and not (mode.lead or mode.single)
    )
    python2_refusals, python2_notes = _python2(program, run, hosts)
    if not mode.tensorflow:
        return Compat("none", notes=python2_notes, refusals=python2_refusals)
    uses = tuple(use for use in tf_names_used.of_tensorflow(program) if not use.guarded)
    choice, why = _choice(job, program, uses, run, hosts)
    recent = (
        tuple(use for use in uses if absent_names.is_recent(use)) if job.compat == "auto" else ()
    )
    asked_for = uses if choice == "v1" else recent
    sure = tuple(
        use for use in asked_for if use.certain and not use.binds and id(use.node) in run.nodes
    )
    reached_names = {use.name for use in sure}
    unsure = tuple(use for use in asked_for if use.name not in reached_names)
    missing = absent_names.refusals(
        absent_names.missing(sure, job, hosts), has_fallback=_has_fallback(program)
    )
    return Compat(
        choice,
        why,
        (
            *python2_notes,
            *(absent_names.supplied(asked_for, hosts) if choice == "v1" else ()),
            *absent_names.notes(absent_names.missing(unsure, job, hosts)),
        ),
        (*python2_refusals, *missing, *_without_keras_2(sure, hosts)),
        hardcoded_cluster.clusters(program),
    )


def check(compat: Compat, program: Program) -> None:
    """Raise Refused if the program surely uses something that its hosts lack.

    The error shows the first few such uses, with their places and what to write instead.
    """
    if not compat.refusals:
        return
    where, what, instead = compat.refusals[0]
    others = [
        f"{at}: {names}" + (f" ({way})" if way != instead else "")
        for at, names, way in compat.refusals[1:]
    ]
    more = f"; also {'; '.join(others[:_SHOWN])}" if others else ""
    left = f"; and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    raise Refused(
        f"{program.path or 'the program'} cannot run as it is: {what}{more}{left}",
        where=where,
        next=instead,
    )


def notes(job: Job, compat: Compat, cluster: Cluster) -> tuple[str, ...]:
    """Return the notes on compatibility.

    They say why the program runs as TensorFlow 1 or not, and for each cluster that is written into
    the program, whether the plan replaces it.
    """
    texts = [f"compat {compat.choice}: {compat.why}"] if compat.why else []
    for each in compat.hardcoded if cluster else ():
        if job.cluster == "program":
            texts.append(f"the cluster written at {each.where} stands (`cluster: program`)")
        else:
            differing = "".join(
                f"; {difference}" for difference in hardcoded_cluster.differences(each, cluster)
            )
            texts.append(f"the cluster written at {each.where} gives way to the plan's{differing}")
    return (*texts, *compat.notes)


def keeps_addresses(job: Job, compat: Compat) -> bool:
    """Return whether the tasks listen at addresses that are written into the program.

    Otherwise they listen on the ports of the plan.
    """
    return job.cluster == "program" and bool(compat.hardcoded)


def _choice(
    job: Job, program: Program, uses: tuple[Use, ...], run: Reached, hosts: Mapping[str, HostFacts]
) -> tuple[Literal["v1", "none"], str]:
    if job.compat != "auto":
        return job.compat, f"`compat: {job.compat}`"
    migrated = any(use.name.startswith("compat.v1") for use in uses)
    first = [use for use in uses if _of_version1(use, run, migrated=migrated)]
    second = [use for use in uses if among(use.name, VERSION2)]
    if program.unread and program.script:
        return "none", f"{program.unread}; say `compat: v1` if it is written for TensorFlow 1"
    if not first:
        reason = (
            "uses tensorflow.compat.v1 itself"
            if migrated
            else "uses nothing that is in TensorFlow 1 alone"
        )
        return "none", f"{program.path} {reason}" if uses else ""
    if hosts and all(
        (version_numbers(each.tensorflow) or KERAS_3) < (2, 0) for each in hosts.values()
    ):
        return "none", "the hosts have TensorFlow 1 itself"
    if second:
        both = (
            f"tf.{first[0].name} ({first[0].where}) of TensorFlow 1 and tf.{second[0].name} "
            f"({second[0].where}) of TensorFlow 2"
        )
        return "none", f"the program uses {both}; say `compat: v1` to run it as the first"
    others = len({use.name for use in first}) - 1
    more = f" and {others} more names" if others > 1 else " and one more name" if others else ""
    return (
        "v1",
        f"tf.{first[0].name} ({first[0].where}){more} of TensorFlow 1: `import tensorflow` gives "
        "version 1",
    )


def _of_version1(use: Use, run: Reached, *, migrated: bool) -> bool:
    """Return whether this use of a name shows that the program is written for TensorFlow 1.

    `migrated`: the program uses compat.v1 itself. In that case, a name that TensorFlow 2 lacks is a
    sign only if every run of the program reaches it.
    """
    absent = removed_names.replacement(use.name) is not None or removed_names.is_of_version0(
        use.name
    )
    if not absent or absent_names.is_recent(use):
        return among(use.name, VERSION1) or removed_names.is_of_version0(use.name)
    return not migrated or (id(use.node) in run.nodes and not use.binds)


def _has_fallback(program: Program) -> bool:
    """Return whether the program has code for other TensorFlow versions.

    Signs are a name of TensorFlow in a `try` or after a version test, and the use of compat.v1.
    """
    return any(
        use.guarded or use.name.startswith("compat.")
        for use in tf_names_used.of_tensorflow(program)
    )


def _without_keras_2(sure: Iterable[Use], hosts: Mapping[str, HostFacts]) -> Iterator[Refusal]:
    use = next(
        (use for use in sure if among(removed_names.present_name(use.name), IN_TF_KERAS)), None
    )
    lacking = legacy_keras.without_keras_2(hosts.values())
    if use and lacking:
        names = fold_names(each.host for each in lacking)
        yield (
            use.where,
            f"tf.{use.name} needs tf_keras, which is missing on {names}",
            legacy_keras.install(lacking),
        )


def _python2(
    program: Program, run: Reached, hosts: Mapping[str, HostFacts]
) -> tuple[tuple[Refusal, ...], tuple[str, ...]]:
    """Return (refusals, notes) for syntax and built-in functions of Python 2 in the program."""
    if hosts and all((each.python_version or "3").startswith("2") for each in hosts.values()):
        return (), ()
    places = [(where, syntax, where.rpartition(":")[0]) for where, syntax in program.python2]
    sure = tuple(
        (where, f"{syntax} is Python 2, and the hosts run Python 3", f"2to3 -w {file}")
        for where, syntax, file in places
        if file in run.files or not program.modules
    )
    by_name = {use.name: use for use in reversed(tf_names_used.of_names(program, python2.BUILTINS))}
    later = [(use.where, use.name, use.path) for use in by_name.values()]
    later += [row for row in places if row[2] not in run.files and program.modules]
    return sure, tuple(
        f"{what} at {at} is Python 2 and will fail when it is reached: 2to3 -w {file}"
        for at, what, file in later
    )
