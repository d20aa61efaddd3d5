"""Finds names, methods and arguments of Keras 2 that Keras 3 does not have. Reads syntax trees.

Source: a comparison of what keras 3.15 and tf_keras 2.21 export; only what always fails in Keras 3. Code that a `try`
guards does not count.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from tfdeploy.planning.program import guards, tf_names_used
from tfdeploy.planning.program.flag_types import text
from tfdeploy.planning.program.source import Program

NAMES = (
    "backend.function",
    "backend.learning_phase",
    "backend.learning_phase_scope",
    "backend.placeholder",
    "backend.set_learning_phase",
    "callbacks.experimental",
    "estimator",
    "experimental",
    "layers.AbstractRNNCell",
    "layers.DenseFeatures",
    "layers.LocallyConnected1D",
    "layers.LocallyConnected2D",
    "layers.experimental",
    "metrics.MeanRelativeError",
    "metrics.MeanTensor",
    "optimizers.experimental",
    "utils.SidecarEvaluator",
)
METHODS = ("reset_states", "fit_generator", "evaluate_generator", "predict_generator")
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


class Keras2Use(NamedTuple):
    where: str  # "train.py:12"
    what: str  # "tf.keras.experimental.PeepholeLSTMCell", ".reset_states()", "Adam(lr=)"


def first_use(program: Program) -> Keras2Use | None:
    """The first use, in a program that takes its Keras from TensorFlow; `import keras` is not affected."""
    found = [use for use in tf_names_used.of_tensorflow(program) if use.name.split(".")[0] == "keras"]
    for use in found:
        if not use.guarded and any(_within(use.name, f"keras.{name}") for name in NAMES):
            return Keras2Use(use.where, f"tf.{use.name}")
    return next((Keras2Use(*each) for each in _calls(program)), None) if found else None


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


def _calls(program: Program) -> list[tuple[str, str]]:
    guarded = guards.guarded(program)
    return [
        (f"{path}:{node.lineno}", what)
        for path, tree in program.modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in guarded and (what := _gone(node, tree))
    ]


def _gone(call: ast.Call, tree: ast.Module) -> str | None:
    """What of this call Keras 3 does not have, or None. Methods that the module itself defines do not count."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if isinstance(call.func, ast.Attribute) and name in METHODS:
        own = any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.walk(tree))
        return None if own else f".{name}()"
    if name in _OPTIMIZERS and "lr" in given:
        return f"{name}(lr=)"
    return '.save(save_format="tf")' if name == "save" and text(given.get("save_format")) == "tf" else None
