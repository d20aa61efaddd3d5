"""Finds uses of Keras that need Keras 2: names that Keras 3 lacks, and uses of Keras in graphs.

Keras 3 has no `tf.layers` and no `tf.nn.rnn_cell`. In a graph that runs in a session, the `fit`,
`predict`, LSTM, optimizers and metrics of Keras 3 fail, `model.updates` is missing, and Dropout
uses the same mask in every step. Variables have the same names in Keras 2 and 3, so both can read
the same checkpoints. The lists in this module come from the exports of keras 3.15 and tf_keras
2.21. They were tested with TensorFlow 2.21, and contain only names whose use always fails.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from tfdeploy.planning.source import guards, reached
from tfdeploy.planning.source.expressions import argument, last_name, literal_text
from tfdeploy.planning.source.imports import unguarded_imports
from tfdeploy.planning.source.parsed_file import ParsedFile, enclosing_nodes, place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used
from tfdeploy.planning.versions.tf1_names import has_name_or_parent
from tfdeploy.planning.versions.tf_names_used import NameUse
from tfdeploy.runtime.old_names import removed_names
from tfdeploy.runtime.old_names.removed_names import is_within

KERAS_3 = (2, 16)  # the first TensorFlow whose tf.keras is Keras 3
# Names of TensorFlow 1 that, since TensorFlow version KERAS_3, only the package tf_keras provides.
IN_TF_KERAS = frozenset({"layers", "nn.rnn_cell"})
_LOSSES = """
    kl_divergence log_cosh mean_absolute_error mean_absolute_percentage_error mean_squared_error
    mean_squared_logarithmic_error
"""
_OPTIMIZERS = "Adadelta Adagrad Adam Adamax Ftrl Nadam RMSprop SGD"


def _qualify_keras_names(names_by_part: Mapping[str, str]) -> frozenset[str]:
    """Return the full names, in the form "keras.PART.NAME".

    `names_by_part`: {part of Keras: its names, separated by blanks}. The part "" stands for keras
    itself.
    """
    full = (
        f"keras.{part}.{name}" for part, names in names_by_part.items() for name in names.split()
    )
    return frozenset(name.replace("..", ".") for name in full)


_NAMES = _qualify_keras_names(
    {
        "": "dtensor estimator experimental",
        "applications": """
            RegNetX002 RegNetX004 RegNetX006 RegNetX008 RegNetX016 RegNetX032 RegNetX040
            RegNetX064 RegNetX080 RegNetX120 RegNetX160 RegNetX320 RegNetY002 RegNetY004
            RegNetY006 RegNetY008 RegNetY016 RegNetY032 RegNetY040 RegNetY064 RegNetY080
            RegNetY120 RegNetY160 RegNetY320 ResNetRS50 ResNetRS101 ResNetRS152 ResNetRS200
            ResNetRS270 ResNetRS350 ResNetRS420 regnet resnet_rs
        """,
        "backend": """
            experimental function in_test_phase in_train_phase learning_phase learning_phase_scope
            local_conv1d local_conv2d manual_variable_initialization normalize_batch_in_training
            placeholder print_tensor random_binomial reset_uids set_learning_phase
        """,
        "callbacks": "BaseLogger SidecarEvaluatorModelExport experimental",
        "constraints": "RadialConstraint radial_constraint",
        "layers": """
            AbstractRNNCell DenseFeatures LocallyConnected1D LocallyConnected2D experimental
        """,
        "losses": _LOSSES,
        "metrics": f"MeanRelativeError MeanTensor experimental {_LOSSES}",
        "models": "experimental model_from_config",
        # In Keras 3, the names below optimizers.legacy exist, but their use raises ImportError.
        "optimizers": f"experimental legacy.{_OPTIMIZERS.replace(' ', ' legacy.')}",
        "utils": """
            GeneratorEnqueuer OrderedEnqueuer SequenceEnqueuer SidecarEvaluator experimental
            to_ordinal warmstart_embedding_matrix
        """,
    }
)
# Names that Keras 2 has only in the API of TensorFlow 1, and that Keras 3 lacks.
_NAMES_OF_VERSION1 = IN_TF_KERAS | _qualify_keras_names(
    {
        "backend": "get_session set_session",
        "initializers": "normal uniform",
        "layers": "CuDNNGRU CuDNNLSTM disable_v2_dtype_behavior enable_v2_dtype_behavior",
        "losses": "cosine cosine_proximity",
        "metrics": "cosine cosine_proximity",
        "models": "LinearModel WideDeepModel",
        "utils": "DeterministicRandomTestTool get_or_create_layer track_tf1_style_variables",
    }
)
# Modules of Keras that a program can use in graphs with Keras 3 as well as with Keras 2.
_WORK_IN_GRAPHS = ("activations", "datasets", "initializers", "preprocessing", "utils")
# If a program uses a name that ends with one of these texts, it disables eager execution or trains
# with a session.
_FOR_GRAPHS = (
    "disable_eager_execution",
    "disable_v2_behavior",
    "train.MonitoredSession",
    "train.MonitoredTrainingSession",
    "train.SingularMonitoredSession",
    "train.Supervisor",
)
# A program that uses one of these names runs the Keras of compat.v1 in graph mode, not eagerly.
_SESSIONS = ("compat.v1.Session", "compat.v1.InteractiveSession", "compat.v1.placeholder")
# These packages use tf.layers, so a program that imports one of them needs Keras 2.
_PACKAGES = ("tf_slim",)
_METHODS = ("reset_states", "fit_generator", "evaluate_generator", "predict_generator")


class Keras2Use(NamedTuple):
    """The first place in a program where Keras 2 is needed."""

    where: str  # the place, such as "train.py:12"
    # What needs Keras 2, such as "tf.keras.experimental.PeepholeLSTMCell", "tf.keras.layers in a
    # graph", ".reset_states()" or "Adam(lr=)".
    what: str


def first_keras2_use(program: Program, *, version1: bool) -> Keras2Use | None:
    """Return the first thing in the program that needs Keras 2; None if there is none.

    A use is left out if the program itself handles the failure of this use. Uses of Keras from
    `import keras` are left out too, because the choice of Keras 2 affects only tf.keras.
    `version1`: True if `import tensorflow` gives the program TensorFlow 1.
    """
    uses = [use for use in tf_names_used.tensorflow_uses(program) if use.is_certain]
    in_graphs = version1 or _trains_in_graphs(program, uses)
    in_sessions = any(use.name in _SESSIONS for use in uses)
    for use in uses:
        in_graph = in_graphs or (in_sessions and use.name.startswith("compat.v1."))
        what = _describe_keras2_use(use, version1=version1, in_graph=in_graph)
        if what and not use.is_guarded:
            return Keras2Use(use.where, what)
    uses_keras = any(is_within(_present_name(use), "keras") for use in uses)
    packages = (
        Keras2Use(where, module)
        for module, where, _ in unguarded_imports(program)
        if module in _PACKAGES
    )
    return next(chain(packages, _keras2_calls(program, uses) if uses_keras else ()), None)


def _describe_keras2_use(use: NameUse, *, version1: bool, in_graph: bool) -> str | None:
    """Describe a use of a name that works only with Keras 2; return None for any other use.

    Either Keras 3 lacks the name, or the name does not work in a graph with Keras 3.
    """
    name = _present_name(use)
    of_version1 = version1 or use.name.startswith("compat.v1.")
    part = name.split(".")[1] if name.startswith("keras.") else ""
    if has_name_or_parent(name, _NAMES) or (
        of_version1 and has_name_or_parent(name, _NAMES_OF_VERSION1)
    ):
        return f"tf.{use.name}"
    return (
        f"tf.{use.name} in a graph" if part and part not in _WORK_IN_GRAPHS and in_graph else None
    )


def _trains_in_graphs(program: Program, uses: list[NameUse]) -> bool:
    """Return whether the program disables eager execution or trains with a session of tf.train.

    Only code at module level, and in functions that every run calls, counts.
    """
    in_graphs = [use.node for use in uses if _present_name(use).endswith(_FOR_GRAPHS)]
    return any(
        not any(isinstance(each, ast.FunctionDef) for each in enclosing_nodes(node))
        or id(node) in reached.certainly_reached(program, has_workers=True).nodes
        for node in in_graphs
    )


def _present_name(use: NameUse) -> str:
    return removed_names.current_name(use.bare_name)


def _keras2_calls(program: Program, uses: list[NameUse]) -> Iterator[Keras2Use]:
    guarded = guards.guarded_nodes(program)
    classes = {id(use.node) for use in uses if is_within(_present_name(use), "keras.optimizers")}
    for module in program.modules:
        own_methods = {node.name for node in module.find(ast.FunctionDef)}
        optimizers = set(_optimizer_variables(module, classes))
        for node in module.find(ast.Call):
            if id(node) not in guarded and (
                what := _describe_keras2_call(node, own_methods, optimizers)
            ):
                yield Keras2Use(place_of(node), what)


def _optimizer_variables(module: ParsedFile, class_node_ids: Container[int]) -> Iterator[str]:
    """Yield the names of variables that contain a Keras optimizer: "opt" for `opt` or `self.opt`.

    `class_node_ids`: the ids of the syntax nodes that stand for an optimizer class.
    """
    for node in module.find(ast.Assign):
        if isinstance(node.value, ast.Call) and id(node.value.func) in class_node_ids:
            yield from filter(None, map(last_name, node.targets))


def _describe_keras2_call(
    call: ast.Call, own_methods: Container[str], optimizers: Container[str]
) -> str | None:
    """Describe a call whose method or argument Keras 3 lacks; return None for any other call.

    `own_methods`: the functions that the module itself defines. Calls of these functions do not
    count.
    """
    match call.func:
        case ast.Attribute(attr=name) if name in _METHODS:
            return None if name in own_methods else f".{name}()"
        case ast.Attribute(owner, "minimize") if last_name(owner) in optimizers:
            return "minimize() of Keras' optimizers"
        case ast.Attribute(attr=name) | ast.Name(name):
            if name in (*_OPTIMIZERS.split(), "AdamW") and argument(call, "lr"):
                return f"{name}(lr=)"
            if name == "save" and literal_text(argument(call, "save_format")) == "tf":
                return '.save(save_format="tf")'
    return None
