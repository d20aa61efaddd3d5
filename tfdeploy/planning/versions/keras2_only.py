"""Finds what of a program only Keras 2 can do: names, methods and arguments that Keras 3 does not have, and Keras in graphs.

Source: a comparison of what keras 3.15 and tf_keras 2.21 export, and trials of both with TensorFlow 2.21; only what always fails
in Keras 3. It has no `tf.layers` and no `tf.nn.rnn_cell`, and in a graph with sessions its `fit`, `predict`, LSTM, optimizers and
metrics fail, `model.updates` is not there, and Dropout has the same mask in each step. Its variables have the same
names as those of Keras 2, so checkpoints fit both. Code that a `try` guards does not count.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from tfdeploy.planning.source import guards, reached
from tfdeploy.planning.source.flag_types import last_name, text
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used
from tfdeploy.planning.versions.tf1_names import among
from tfdeploy.planning.versions.tf_names_used import Use, within
from tfdeploy.runtime import replaced

KERAS_3 = (2, 16)  # the first TensorFlow whose tf.keras is Keras 3
IN_TF_KERAS = frozenset({"layers", "nn.rnn_cell"})  # of version 1: from here on in tf_keras alone
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
# Those that Keras 2 itself has only in version 1.
_NAMES_1 = (
    "backend.get_session",
    "backend.set_session",
    "initializers.normal",
    "initializers.uniform",
    "layers.CuDNNGRU",
    "layers.CuDNNLSTM",
    "utils.get_or_create_layer",
    "utils.track_tf1_style_variables",
)
# Parts of Keras 3 that do in a graph what those of Keras 2 do.
_SAME_IN_GRAPHS = ("activations", "datasets", "initializers", "preprocessing", "utils")
_TURN_EAGER_OFF = ("disable_eager_execution", "disable_v2_behavior")
_IN_GRAPHS = ("MonitoredSession", "MonitoredTrainingSession", "SingularMonitoredSession", "Supervisor")  # of train
# A program that takes its Keras from compat.v1 has graphs where it has one of these.
_SESSIONS = ("compat.v1.Session", "compat.v1.InteractiveSession", "compat.v1.placeholder")
_PACKAGES = ("tf_slim",)  # made of tf.layers
METHODS = ("reset_states", "fit_generator", "evaluate_generator", "predict_generator")
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


class Keras2Use(NamedTuple):
    where: str  # "train.py:12"
    what: str  # "tf.keras.experimental.PeepholeLSTMCell", "tf.keras.layers in a graph", ".reset_states()", "Adam(lr=)"


def first_use(program: Program, *, version1: bool = False) -> Keras2Use | None:
    """The first use, in a program that takes its Keras from TensorFlow; `import keras` is not affected.

    `version1`: `import tensorflow` gives version 1."""
    uses = [use for use in tf_names_used.of_tensorflow(program) if use.plain]
    in_graphs = version1 or _trains_in_graphs(program, uses)
    in_sessions = any(use.name in _SESSIONS for use in uses)
    for use in uses:
        in_graph = in_graphs or (in_sessions and use.name.startswith("compat.v1."))
        what = None if use.guarded else _of_keras_2(use, version1=version1, in_graph=in_graph)
        if what:
            return Keras2Use(use.where, what)
    found = any(within(_plain(use), "keras") for use in uses)
    return next((Keras2Use(*each) for each in (*_packages(program), *(_calls(program) if found else ()))), None)


def _of_keras_2(use: Use, *, version1: bool, in_graph: bool) -> str | None:
    """The use in words, if only Keras 2 has the name or does what the program expects of it."""
    name = _plain(use)
    written1 = version1 or use.name.startswith("compat.v1.")
    part = name.split(".")[1] if within(name, "keras") and name != "keras" else ""
    names = (*NAMES, *_NAMES_1) if written1 else NAMES
    if any(within(name, f"keras.{each}") for each in names) or (written1 and among(name, IN_TF_KERAS)):
        return f"tf.{use.name}"
    return f"tf.{use.name} in a graph" if part and part not in _SAME_IN_GRAPHS and in_graph else None


def _trains_in_graphs(program: Program, uses: list[Use]) -> bool:
    """Whether the program turns eager execution off, or trains with a session of tf.train. What a function does that may never be
    called does not count."""
    found = [use for use in uses if _is_of_graphs(_plain(use))]
    in_functions = {
        id(inner)
        for tree in (program.trees if found else ())
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
    }
    if any(id(use.node) not in in_functions for use in found):
        return True
    executed = reached.reached(program).nodes if found else frozenset()
    return any(id(use.node) in executed for use in found)


def _is_of_graphs(name: str) -> bool:
    return name.rpartition(".")[2] in _TURN_EAGER_OFF or name in [f"train.{each}" for each in _IN_GRAPHS]


def _plain(use: Use) -> str:
    return replaced.today(use.name.removeprefix("compat.v1."))


def _packages(program: Program) -> list[tuple[str, str]]:
    guarded = guards.guarded(program)
    return [
        (f"{path}:{node.lineno}", name)
        for path, tree in program.modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in guarded
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if name.split(".")[0] in _PACKAGES
    ]


def _calls(program: Program) -> list[tuple[str, str]]:
    guarded = guards.guarded(program)
    made = {id(use.node) for use in tf_names_used.of_tensorflow(program) if within(_plain(use), "keras.optimizers")}
    return [
        (f"{path}:{node.lineno}", what)
        for path, tree in program.modules.items()
        for optimizers in [_optimizers(tree, made)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in guarded and (what := _gone(node, tree, optimizers))
    ]


def _optimizers(tree: ast.Module, made: set[int]) -> set[str]:
    """The names that the module gives to Keras' optimizers: "opt", or "opt" of self.opt. `made`: the nodes of their classes."""
    return {
        last_name(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and id(node.value.func) in made
        for target in node.targets
    } - {""}


def _gone(call: ast.Call, tree: ast.Module, optimizers: set[str]) -> str | None:
    """What of this call Keras 3 does not have, or None. Methods that the module itself defines do not count."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if isinstance(call.func, ast.Attribute) and name in METHODS:
        own = any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.walk(tree))
        return None if own else f".{name}()"
    if isinstance(call.func, ast.Attribute) and name == "minimize" and last_name(call.func.value) in optimizers:
        return "minimize() of Keras' optimizers"
    if name in _OPTIMIZERS and "lr" in given:
        return f"{name}(lr=)"
    return '.save(save_format="tf")' if name == "save" and text(given.get("save_format")) == "tf" else None
