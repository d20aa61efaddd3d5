"""Keras' `fit` on several workers: Keras 3 cannot do it, so that the program gets Keras 2 (tf_keras) where it is there.

Decided by the program's syntax trees and the hosts' facts. Where tf_keras is missing, the launch is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.folding import fold_names
from tfdeploy.model.job import Job
from tfdeploy.planning import uses
from tfdeploy.planning.program import Program

VARIABLE = "TF_USE_LEGACY_KERAS"
KERAS_3 = (2, 16)  # the first TensorFlow whose tf.keras is Keras 3
_WHAT = "calls Keras' fit under MultiWorkerMirroredStrategy, which Keras 3 cannot do"
_STRATEGIES = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")


def environment(job: Job, program: Program, facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """The variable where the program needs it, and nothing otherwise; what the job says stands. Raises Refused where a host
    has no tf_keras."""
    place = _fit(program)
    if place is None or VARIABLE in job.env or not _trains_together(program):
        return {}
    needing = [each for each in facts.values() if _imports(program, "tf_keras") or (_of_tensorflow(program) and _keras_3(each))]
    lacking = [each for each in needing if each.tf_keras is None]
    if lacking:
        names = fold_names(each.host for each in lacking)
        raise Refused(
            f"{place} {_WHAT}, and tf_keras is missing on {names}",
            where=f"host {lacking[0].host}",
            next=f"`{lacking[0].python} -m pip install tf_keras{_matching(lacking[0])}` on {names}",
        )
    return {VARIABLE: "1"} if needing and _of_tensorflow(program) else {}


def notes(given: Mapping[str, str], job: Job, program: Program) -> tuple[str, ...]:
    """What was chosen and why, or that Keras 3 by its own name is out of reach."""
    place = _fit(program)
    if VARIABLE in given:
        return (f"{VARIABLE}=1: {place} {_WHAT}",)
    if job.mode == "mirrored" and place and _trains_together(program) and _imports(program, "keras"):
        return (f"{place} calls fit of the package keras: Keras 3 cannot do that here; write `from tensorflow import keras`",)
    return ()


def _fit(program: Program) -> str | None:
    """Where the first `.fit(...)` stands."""
    for path, tree in zip(program.paths, program.trees, strict=True):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
                return f"{path}:{node.lineno}"
    return None


def _trains_together(program: Program) -> bool:
    return any(use.name.rpartition(".")[2] in _STRATEGIES for use in uses.of_tensorflow(program))


def _of_tensorflow(program: Program) -> bool:
    return any("keras" in use.name.split(".") for use in uses.of_tensorflow(program))


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
    return version is None or (int(version[1]), int(version[2])) >= KERAS_3


def _matching(facts: HostFacts) -> str:
    """tf_keras has the version of the TensorFlow it belongs to."""
    version = re.match(r"\d+\.\d+", facts.tensorflow or "")
    return f"~={version[0]}.0" if version else ""
