"""Selects Keras 2 (the package tf_keras) for programs that Keras 3 cannot run.

Keras 3 cannot do `fit` on several workers, has dropped some names, and does not work in graphs. The
decision depends on the program's syntax trees and the hosts' facts, but not on the job's `compat`.
If the planner cannot read a program of TensorFlow 1, for example because a shell script starts it,
the runtime selects Keras 2 on the host (runtime/old_names/version1.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Notes
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import keras2_only, tf_names_used
from tfdeploy.text.names import fold_names
from tfdeploy.text.nexts import command_on_host
from tfdeploy.text.units import version_numbers

VARIABLE = "TF_USE_LEGACY_KERAS"


@dataclass(frozen=True)
class KerasChoice:
    """The choice of a Keras version for the program, and the plan's notes on this choice.

    `variables`: the environment variables that select Keras 2; empty if no version is selected.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    notes: Notes = ()


def decide_keras_version(
    job: Job, program: Program, facts: FactsByHost, *, version1: bool = False
) -> KerasChoice:
    """Select Keras 2 if the program needs it, unless the job's `env` already selects a version.

    If a host lacks tf_keras and the program calls `fit` on several workers, raises Refused. If a
    host lacks tf_keras in other cases, no version is selected, and the result has a note.
    `version1`: True if `import tensorflow` gives the program TensorFlow 1.
    """
    if not rules_of(job.mode).tensorflow:
        return KerasChoice()
    fit, use = (
        _where_fits_distributed(job, program),
        keras2_only.first_keras2_use(program, version1=version1),
    )
    if VARIABLE not in job.env and (fit or use):
        by_tensorflow = use is not None or any(
            "keras" in each.name.split(".") for each in tf_names_used.tensorflow_uses(program)
        )
        needing = [
            each
            for each in facts.values()
            if program.imports_any("tf_keras") or (by_tensorflow and _has_keras_3(each))
        ]
        lacking = [each for each in needing if each.tf_keras is None]
        strategy = "".join(rules_of(job.mode).needs_keras_2[:1])
        why = f"{fit} calls Keras' fit under {strategy}, which Keras 3 cannot do"
        if use and not fit:
            why = f"{use.what} ({use.where}) needs Keras 2"
        if lacking and fit:
            names = fold_names(each.host for each in lacking)
            raise Refused(
                f"{why}, and tf_keras is missing on {names}",
                where=f"host {lacking[0].host}",
                next=tf_keras_install_command(lacking),
            )
        if lacking:
            fails = "and with Keras 3 the program fails or behaves differently; to install Keras 2"
            return KerasChoice(notes=(f"{why}, {fails}: {tf_keras_install_command(lacking)}",))
        if needing and by_tensorflow:
            return KerasChoice({VARIABLE: "1"}, (f"{VARIABLE}=1: {why}",))
    if fit and program.imports_any("keras"):
        cure = f"Keras 3 cannot do that in mode {job.mode}; write `from tensorflow import keras`"
        return KerasChoice(notes=(f"{fit} calls fit of the package keras: {cure}",))
    return KerasChoice()


def hosts_without_keras_2(facts: Iterable[HostFacts]) -> list[HostFacts]:
    """Return the hosts without Keras 2: their TensorFlow has Keras 3, and they lack tf_keras."""
    return [each for each in facts if _has_keras_3(each) and each.tf_keras is None]


def tf_keras_install_command(lacking: Sequence[HostFacts]) -> str:
    """Return the command that installs tf_keras on these hosts.

    It installs the version that fits the hosts' TensorFlow.
    """
    first = lacking[0]
    known = version_numbers(first.tensorflow)[:2]
    package = "tf_keras~={}.{}.0".format(*known) if known[1:] else "tf_keras"
    names = fold_names(each.host for each in lacking)
    return command_on_host(names, first.python or "python3", "-m", "pip", "install", package)


def _where_fits_distributed(job: Job, program: Program) -> str | None:
    """Return the place of the first `.fit(...)` in a program that trains on several workers.

    The place is a text such as "train.py:12". Returns None if there is no such call, or if the
    program uses no strategy for several workers.
    """
    strategies = rules_of(job.mode).needs_keras_2
    uses = tf_names_used.tensorflow_uses(program)
    if any(use.name.rpartition(".")[2] in strategies for use in uses):
        for node in program.find(ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
                return place_of(node)
    return None


def _has_keras_3(facts: HostFacts) -> bool:
    return (version_numbers(facts.tensorflow) or keras2_only.KERAS_3) >= keras2_only.KERAS_3
