"""Selects Keras 2 (tf_keras) for programs that Keras 3 cannot run: `fit` on several workers, names that it dropped, graphs.

Decided by syntax trees and the hosts' facts, whatever `compat` is. Where tf_keras is missing, `fit` is refused, and the rest
is a note. A program of TensorFlow 1 that the plan cannot read (`bash train.sh`) gets Keras 2 from the runtime (version1.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.folding import fold_names
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.nexts import on_host
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import keras2_only, tf_names_used

VARIABLE = "TF_USE_LEGACY_KERAS"


def environment(job: Job, program: Program, facts: Mapping[str, HostFacts], *, version1: bool = False) -> dict[str, str]:
    """The variable where the program needs it, else nothing; the job's own `env` wins. Raises Refused where a host lacks
    tf_keras and the program calls `fit`. `version1`: `import tensorflow` gives version 1."""
    place, use = _fit(job, program), keras2_only.first_use(program, version1=version1)
    if VARIABLE in job.env or not rules(job.mode).tensorflow or not (place or use):
        return {}
    by_tensorflow = use is not None or _of_tensorflow(program)
    needing = [each for each in facts.values() if _imports(program, "tf_keras") or (by_tensorflow and _keras_3(each))]
    lacking = [each for each in needing if each.tf_keras is None]
    if lacking and place:
        names = fold_names(each.host for each in lacking)
        raise Refused(
            f"{_what(job, place)}, and tf_keras is missing on {names}",
            where=f"host {lacking[0].host}",
            next=_install(lacking[0], names),
        )
    return {VARIABLE: "1"} if needing and not lacking and by_tensorflow else {}


def notes(
    given: Mapping[str, str], job: Job, program: Program, facts: Mapping[str, HostFacts], *, version1: bool = False
) -> tuple[str, ...]:
    """Notes: the choice and why, or what will fail."""
    if not rules(job.mode).tensorflow:
        return ()
    place, use = _fit(job, program), keras2_only.first_use(program, version1=version1)
    if VARIABLE in given:
        return (f"{VARIABLE}=1: " + (_what(job, place) if place else f"{use.what} ({use.where}) is of Keras 2" if use else ""),)
    if place and _imports(program, "keras"):
        return (f"{place} calls fit of the package keras: Keras 3 cannot do that here; write `from tensorflow import keras`",)
    lacking = [each for each in facts.values() if _keras_3(each) and each.tf_keras is None]
    if use and lacking and VARIABLE not in job.env:
        names = fold_names(each.host for each in lacking)
        means = f"{use.what} ({use.where}) is of Keras 2, and fails or does something else where it is reached"
        return (f"{means}: {_install(lacking[0], names)}",)
    return ()


def _what(job: Job, place: str) -> str:
    return f"{place} calls Keras' fit under {rules(job.mode).needs_keras_2[0]}, which Keras 3 cannot do"


def _fit(job: Job, program: Program) -> str | None:
    """The place of the first `.fit(...)` of a program that trains on several workers, or None."""
    strategies = rules(job.mode).needs_keras_2
    if not any(use.name.rpartition(".")[2] in strategies for use in tf_names_used.of_tensorflow(program)):
        return None
    for path, tree in zip(program.paths, program.trees, strict=True):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
                return f"{path}:{node.lineno}"
    return None


def _of_tensorflow(program: Program) -> bool:
    return any("keras" in use.name.split(".") for use in tf_names_used.of_tensorflow(program))


def _imports(program: Program, package: str) -> bool:
    for tree in program.trees:
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == package for name in names):
                return True
    return False


def _keras_3(facts: HostFacts) -> bool:
    version = re.match(r"(\d+)\.(\d+)", facts.tensorflow or "")
    return version is None or (int(version[1]), int(version[2])) >= keras2_only.KERAS_3


def _install(facts: HostFacts, hosts: str) -> str:
    """The line that installs the tf_keras of this TensorFlow's version on hosts."""
    version = re.match(r"\d+\.\d+", facts.tensorflow or "")
    package = f"tf_keras{f'~={version[0]}.0' if version else ''}"
    return on_host(hosts, facts.python or "python3", "-m", "pip", "install", package)
