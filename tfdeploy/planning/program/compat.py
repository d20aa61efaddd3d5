"""Whether a program runs as TensorFlow 1 on TensorFlow 2, what prevents it, and whether a cluster written in it is replaced.

Decided by syntax trees and the hosts' facts; nothing is run. The runtime carries the choice out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tfdeploy.errors import Refused
from tfdeploy.model.cluster import Cluster
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.nexts import on_host
from tfdeploy.planning.program import hardcoded_cluster, python2, tf_names_used
from tfdeploy.planning.program.source import Program
from tfdeploy.planning.program.tf1_names import VERSION1, VERSION2, among
from tfdeploy.planning.program.tf_names_used import Use
from tfdeploy.runtime import replaced

KERAS_3 = (2, 16)  # from here on tf.layers and tf.nn.rnn_cell are in tf_keras alone
_OF_KERAS_2 = frozenset({"layers", "nn.rnn_cell"})
_SHOWN = 5


@dataclass(frozen=True)
class Compat:
    """`choice`: what the tasks get in TFDEPLOY_TASK_COMPAT. `refusals`: (where, what, in place of it)."""

    choice: Literal["v1", "none"]
    why: str = ""
    notes: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str, str], ...] = ()
    hardcoded: tuple[hardcoded_cluster.HardcodedCluster, ...] = ()


def decide(job: Job, program: Program, facts: Mapping[str, HostFacts] | None = None) -> Compat:
    """By the job's `compat` and the program's names. `facts`: of the hosts it will run on; none: TensorFlow 2, Python 3."""
    hosts = facts or {}
    if not rules(job.mode).tensorflow:
        return Compat("none", notes=_python2_notes(program, hosts), refusals=tuple(_python2_refusals(program, hosts)))
    found = tuple(use for use in tf_names_used.of_tensorflow(program) if not use.guarded)
    choice, why = _choice(job, program, found, hosts)
    asked_for = found if choice == "v1" else tuple(use for use in found if _since(use)) if job.compat == "auto" else ()
    return Compat(
        choice,
        why,
        _python2_notes(program, hosts),
        (*_python2_refusals(program, hosts), *_refusals(asked_for, hosts)),
        hardcoded_cluster.clusters(program),
    )


def check(compat: Compat, program: Program) -> None:
    """Raises Refused with every name that cannot be supplied: file:line, and what replaces it."""
    if not compat.refusals:
        return
    where, what, instead = compat.refusals[0]
    others = [f"{at}: {name}" + (f" ({way})" if way != instead else "") for at, name, way in compat.refusals[1:]]
    more = f"; also {'; '.join(others[:_SHOWN])}" if others else ""
    left = f"; and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    raise Refused(f"{program.path or 'the program'} cannot run as it is: {what}{more}{left}", where=where, next=instead)


def notes(job: Job, compat: Compat, cluster: Cluster) -> tuple[str, ...]:
    """The plan's notes: the choice and why, and whether each cluster that is written into the program is replaced."""
    texts = [f"compat {compat.choice}: {compat.why}"] if compat.why else []
    for each in compat.hardcoded if cluster else ():
        if job.cluster == "program":
            texts.append(f"the cluster written at {each.where} stands (`cluster: program`)")
        else:
            differing = "".join(f"; {difference}" for difference in hardcoded_cluster.differences(each, cluster))
            texts.append(f"the cluster written at {each.where} gives way to the plan's{differing}")
    return (*texts, *compat.notes)


def keeps_addresses(job: Job, compat: Compat) -> bool:
    """Whether the tasks listen at the program's own addresses, not on the plan's ports."""
    return job.cluster == "program" and bool(compat.hardcoded)


def _choice(
    job: Job, program: Program, found: tuple[Use, ...], hosts: Mapping[str, HostFacts]
) -> tuple[Literal["v1", "none"], str]:
    if job.compat != "auto":
        return job.compat, f"`compat: {job.compat}`"
    first = [use for use in found if among(use.name, VERSION1) or (replaced.in_place(use.name) and not _since(use))]
    second = [use for use in found if among(use.name, VERSION2)]
    if program.unread and program.script:
        return "none", f"{program.unread}; say `compat: v1` if it is written for TensorFlow 1"
    if not first:
        return "none", f"{program.path} uses nothing that is in TensorFlow 1 alone" if found else ""
    if hosts and all((_version(each) or KERAS_3) < (2, 0) for each in hosts.values()):
        return "none", "the hosts have TensorFlow 1 itself"
    if second:
        both = (
            f"tf.{first[0].name} ({first[0].where}) of TensorFlow 1 and tf.{second[0].name} ({second[0].where}) of TensorFlow 2"
        )
        return "none", f"the program uses {both}; say `compat: v1` to run it as the first"
    others = len({use.name for use in first}) - 1
    more = f" and {others} more names" if others > 1 else " and one more name" if others else ""
    return "v1", f"tf.{first[0].name} ({first[0].where}){more} of TensorFlow 1: `import tensorflow` gives version 1"


def _refusals(found: tuple[Use, ...], hosts: Mapping[str, HostFacts]) -> Iterable[tuple[str, str, str]]:
    seen: set[str] = set()
    for use in found:
        instead = replaced.in_place(_plain(use))
        if instead is None or use.name in seen or (_since(use) and not _gone(use, hosts)):
            continue
        seen.add(use.name)
        yield use.where, f"tf.{use.name} is not in TensorFlow {_from(use)}", f"in its place: {instead}"
    yield from _without_keras_2(found, hosts)


def _without_keras_2(found: tuple[Use, ...], hosts: Mapping[str, HostFacts]) -> Iterable[tuple[str, str, str]]:
    use = next((use for use in found if among(use.name, _OF_KERAS_2)), None)
    for name, each in hosts.items() if use else ():
        if use and each.tf_keras is None and (_version(each) or (0, 0)) >= KERAS_3:
            install = on_host(name, each.python or "python3", "-m", "pip", "install", "tf_keras")
            yield use.where, f"tf.{use.name} needs tf_keras, which {name} has not", install


def _python2_refusals(program: Program, hosts: Mapping[str, HostFacts]) -> Iterable[tuple[str, str, str]]:
    if not hosts or any(not (each.python_version or "3").startswith("2") for each in hosts.values()):
        for where, syntax in program.python2:
            yield where, f"{syntax} is Python 2, and the hosts run Python 3", f"2to3 -w {where.rpartition(':')[0]}"


def _python2_notes(program: Program, hosts: Mapping[str, HostFacts]) -> tuple[str, ...]:
    if hosts and all((each.python_version or "3").startswith("2") for each in hosts.values()):
        return ()
    by_name = {use.name: use for use in reversed(tf_names_used.of_names(program, python2.BUILTINS))}
    return tuple(
        f"{use.name} at {use.where} is Python 2 and will fail when it is reached: 2to3 -w {use.where.rpartition(':')[0]}"
        for use in by_name.values()
    )


def _plain(use: Use) -> str:
    return use.name.removeprefix("compat.v1.")


def _since(use: Use) -> bool:
    return _plain(use).split(".")[0] in replaced.SINCE


def _from(use: Use) -> str:
    """ "2", or "2.16 and later" for what was in it before."""
    return "{}.{} and later".format(*replaced.SINCE[_plain(use).split(".")[0]][0]) if _since(use) else "2"


def _gone(use: Use, hosts: Mapping[str, HostFacts]) -> bool:
    since, _ = replaced.SINCE[_plain(use).split(".")[0]]
    return any((_version(each) or (0, 0)) >= since for each in hosts.values())


def _version(facts: HostFacts) -> tuple[int, int] | None:
    """Of TensorFlow: (2, 21); None where there is none, or its version is not made of numbers."""
    parts = (facts.tensorflow or "").split(".")[:2]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(part.isdigit() for part in parts) else None
