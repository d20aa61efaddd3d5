"""What TensorFlow 2 has no more, by its old name, and what takes its place.

One table for the plan, which reads programs, and for the task, which runs them: pure values, with those of renamed.py.
Names are written without the leading `tf.`: "contrib.slim", "train.SummaryWriter".
"""

from __future__ import annotations

from . import renamed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

# The names of tf.contrib that lie in supplied/contrib, each with the meaning it had in TensorFlow 1.15; renamed.py has more.
CONTRIB: Dict[str, Tuple[str, ...]] = {
    part: tuple(names.split())
    for part, names in {
        "framework": """
            add_arg_scope arg_scope assert_global_step assign_from_checkpoint_fn create_global_step
            get_global_step get_or_create_global_step get_trainable_variables get_variables
            get_variables_to_restore init_from_checkpoint list_variables load_variable
        """,
        "layers": """
            avg_pool2d batch_norm conv2d convolution2d dropout flatten fully_connected
            l1_regularizer l2_regularizer linear max_pool2d relu variance_scaling_initializer
            xavier_initializer xavier_initializer_conv2d
        """,
        "learn": """
            ModeKeys datasets.mnist.read_data_sets python.learn.datasets.mnist.read_data_sets
        """,
        "lookup": "HashTable index_to_string string_to_index",
        "losses": """
            absolute_difference add_loss compute_weighted_loss cosine_distance get_losses
            get_regularization_losses get_total_loss hinge_loss log_loss mean_pairwise_squared_error
            mean_squared_error sigmoid_cross_entropy softmax_cross_entropy
            sparse_softmax_cross_entropy
        """,
        "metrics": """
            accuracy confusion_matrix streaming_accuracy streaming_auc streaming_false_negatives
            streaming_false_positives streaming_mean streaming_mean_absolute_error
            streaming_mean_cosine_distance streaming_mean_iou streaming_mean_relative_error
            streaming_mean_squared_error streaming_mean_tensor streaming_percentage_less
            streaming_precision streaming_precision_at_thresholds streaming_recall
            streaming_recall_at_k streaming_recall_at_thresholds streaming_root_mean_squared_error
            streaming_sensitivity_at_specificity streaming_sparse_average_precision_at_k
            streaming_sparse_precision_at_k streaming_sparse_recall_at_k
            streaming_specificity_at_sensitivity streaming_true_negatives streaming_true_positives
        """,
        "training": """
            GreedyLoadBalancingStrategy HParams RandomStrategy byte_size_load_fn
        """,
    }.items()
}

_CONTRIB = "a TensorFlow 1 program may use tf.layers, tf.nn, tf.train and tf.data in its place"
_SLIM = "the package tf_slim, with the same names, where a host has it: a line `tf_slim` in the requirements of `setup:`"
_ADDONS = "`pip install tensorflow_addons` ({0}), or tf.keras.layers"
# What to write in place of a part of tf.contrib, longest name first wins.
IN_PLACE: Dict[str, str] = {
    "contrib": _CONTRIB,
    "contrib.cluster_resolver": "tf.distribute.cluster_resolver",
    "contrib.crf": _ADDONS.format("tfa.text"),
    "contrib.cudnn_rnn": "tf.nn.rnn_cell, or tf.keras.layers.LSTM and GRU, which use cuDNN by themselves",
    "contrib.data": "tf.data, most of it as tf.data.experimental",
    "contrib.distribute": "tf.distribute",
    "contrib.distributions": "tf.distributions, or `pip install tensorflow_probability`",
    "contrib.eager": "tf.GradientTape and tf.Variable, which are part of TensorFlow 2",
    "contrib.estimator": "tf.keras, or a training loop with tf.train.MonitoredTrainingSession",
    "contrib.ffmpeg": "`pip install tensorflow_io`",
    "contrib.image": "tf.image, or `pip install tensorflow_addons` (tfa.image)",
    "contrib.layers": "tf.layers, tf.keras.layers or tf.feature_column",
    "contrib.learn": "tf.keras, or a training loop with tf.train.MonitoredTrainingSession",
    "contrib.legacy_seq2seq": _ADDONS.format("tfa.seq2seq"),
    "contrib.lite": "tf.lite",
    "contrib.lookup": "tf.lookup",
    "contrib.losses": "tf.losses",
    "contrib.metrics": "tf.metrics",
    "contrib.model_pruning": "`pip install tensorflow_model_optimization`",
    "contrib.opt": "the optimizers of tf.train",
    "contrib.predictor": "tf.saved_model.load",
    "contrib.quantize": "`pip install tensorflow_model_optimization`",
    "contrib.rnn": "a cell of tf.nn.rnn_cell (LSTMCell, GRUCell) with tf.nn.dynamic_rnn or tf.nn.static_rnn",
    "contrib.saved_model": "tf.saved_model",
    "contrib.seq2seq": _ADDONS.format("tfa.seq2seq"),
    "contrib.signal": "tf.signal",
    "contrib.summary": "tf.summary",
    "contrib.session_bundle": "tf.saved_model.simple_save",
    "contrib.tensorboard": "`from tensorboard.plugins import projector`",
    "contrib.tensor_forest": "`pip install tensorflow_decision_forests`",
    "contrib.tpu": "tf.tpu and tf.distribute.TPUStrategy",
    "contrib.training": "tf.train and tf.data",
    "examples": "only input_data and mnist of examples.tutorials.mnist are supplied: copy the example's file into your code",
    "models": "copy the model's files into your code, from github.com/tensorflow/models",
    # names of TensorFlow 0.x that have no successor
    "nn.seq2seq": _ADDONS.format("tfa.seq2seq"),
}
_MNIST = ("examples.tutorials.mnist.input_data", "examples.tutorials.mnist.mnist")
# Names that went away within TensorFlow 2, and from which version on.
SINCE: Dict[str, Tuple[Tuple[int, int], str]] = {
    "estimator": ((2, 16), "tf.keras, or a training loop with tf.train.MonitoredTrainingSession; or TensorFlow 2.15 or older"),
}

# Names that NumPy has dropped (1.18 to 2.4) -> what is the same: in NumPy, or in Python; "": numpy_names.py has it.
NUMPY: Dict[str, str] = {
    "Inf": "inf",
    "Infinity": "inf",
    "NAN": "nan",
    "NINF": "",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "asfarray": "",
    "asscalar": "",
    "bool": "builtins.bool",
    "bool8": "bool_",
    "complex": "builtins.complex",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float": "builtins.float",
    "float_": "float64",
    "in1d": "",
    "infty": "inf",
    "int": "builtins.int",
    "int0": "intp",
    "long": "builtins.int",
    "mat": "asmatrix",
    "msort": "",
    "object": "builtins.object",
    "product": "prod",
    "rank": "ndim",
    "round_": "round",
    "sometrue": "any",
    "str": "builtins.str",
    "string_": "bytes_",
    "trapz": "trapezoid",
    "unicode": "builtins.str",
    "unicode_": "str_",
}


def supplied(name: str) -> bool:
    """Whether a name that TensorFlow 2 has no more is there all the same, or leads to what is there, or lies in it."""
    if not name.startswith("contrib."):
        leads = ("contrib", "examples", "examples.tutorials")
        return name in leads or any(_within(name, module) for module in _MNIST) or of_version0(name)
    if any(_within(name, module) for module in renamed.MODULES):
        return True
    part, rest = section(name)
    return bool(names_of(part)) and (not rest or any(_within(rest, each) for each in names_of(part)))


def of_version0(name: str) -> bool:
    """Whether it is a name of TensorFlow 0.x that is supplied: "mul", "train.SummaryWriter"."""
    return any(lies_in(name, each) for each in renamed.VERSION0)


def today(name: str) -> str:
    """The name that takes the place of one that is supplied: "contrib.rnn.GRUCell" -> "nn.rnn_cell.GRUCell"; else the name."""
    part, rest = section(name) if name.startswith("contrib.") else ("", name)
    known = renamed.CONTRIB.get(part, {}) if part else renamed.VERSION0
    return next((new + rest[len(old) :] for old, new in known.items() if lies_in(rest, old)), name)


def package(name: str) -> Optional[str]:
    """The package that supplies `name` on hosts that have it; None: there is none."""
    part, rest = section(name) if name.startswith("contrib.") else ("", "")
    if part == "slim" or (rest and any(_within(rest, each) for each in renamed.SLIM.get(part, ()))):
        return "tf_slim"
    return None


def stands_in(name: str) -> bool:
    """Whether an import of `name` gives an object that fails when it is used, with the words of `in_place`."""
    return name.split(".")[0] in ("contrib", "examples", "models") and in_place(name) is not None


def in_place(name: str) -> Optional[str]:
    """What to write in place of `name`; None for a name that TensorFlow 2 may well have, or that is supplied."""
    if supplied(name):
        return None
    if package(name):
        return _SLIM
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        found = IN_PLACE.get(".".join(parts[:end]))
        if found is not None:
            return found
    return SINCE[parts[0]][1] if parts[0] in SINCE else None


def section(name: str) -> Tuple[str, str]:
    """("layers", "conv2d") of contrib.layers.conv2d, and of contrib.layers.python.layers.layers.conv2d.

    The parts of contrib had their files in folders `python`, and programs import from these as well.
    """
    part, _, rest = name[len("contrib.") :].partition(".")
    if rest.startswith("python.") and not any(_within(rest, each) for each in CONTRIB.get(part, ())):
        known = names_of(part) + renamed.SLIM.get(part, ())
        words = rest.split(".")
        last = max([at for at, word in enumerate(words) if word in known] or [len(words) - 1])
        rest = ".".join(words[last:])
    return part, rest


def names_of(part: str) -> Tuple[str, ...]:
    """The names of a part of contrib that are supplied without any package; none: there is no such part."""
    return CONTRIB.get(part, ()) + tuple(renamed.CONTRIB.get(part, ()))


def _within(one: str, other: str) -> bool:
    return lies_in(one, other) or other.startswith(one + ".")


def lies_in(name: str, other: str) -> bool:
    """Whether `name` is the other name, or one below it."""
    return name == other or name.startswith(other + ".")
