"""Names that TensorFlow 2 no longer has, and what replaces each: supplied by tfdeploy, by a package, or advice.

The plan and the task share these tables and those of renamed.py. Names are written without the leading `tf.`:
"contrib.slim", "train.SummaryWriter".
"""

from __future__ import annotations

from . import renamed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

# Names of tf.contrib that supplied/contrib defines, with their meaning in TensorFlow 1.15; renamed.py has more.
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
# Name -> what to write in its place; of several names that match, the longest counts.
REPLACEMENTS: Dict[str, str] = {
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
# Name -> the version of TensorFlow 2 that removed it, and what to write in its place.
REMOVED_SINCE: Dict[str, Tuple[Tuple[int, int], str]] = {
    "estimator": ((2, 16), "tf.keras, or a training loop with tf.train.MonitoredTrainingSession; or TensorFlow 2.15 or older"),
}

# Names that NumPy 1.18 to 2.4 dropped -> the same thing in NumPy, or in Python; "" if numpy_names.py defines it.
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


def is_supplied(name: str) -> bool:
    """Whether a removed name works all the same, or a name below it does."""
    if not name.startswith("contrib."):
        packages = ("contrib", "examples", "examples.tutorials")
        return name in packages or any(_overlap(name, module) for module in _MNIST) or is_of_version0(name)
    if any(_overlap(name, module) for module in renamed.MODULES):
        return True
    part, rest = split_contrib(name)
    names = supplied_names(part)
    return bool(names) and (not rest or any(_overlap(rest, each) for each in names))


def is_of_version0(name: str) -> bool:
    """Whether it is a supplied name of TensorFlow 0.x: "mul", "train.SummaryWriter"."""
    return any(is_within(name, each) for each in renamed.VERSION0)


def name_today(name: str) -> str:
    """The present name of a renamed one: "contrib.rnn.GRUCell" -> "nn.rnn_cell.GRUCell". Others are returned unchanged."""
    part, rest = split_contrib(name)
    known = renamed.CONTRIB.get(part, {}) if part else renamed.VERSION0
    return next((new + rest[len(old) :] for old, new in known.items() if is_within(rest, old)), name)


def supplying_package(name: str) -> Optional[str]:
    """The package that has `name`, on hosts where it is installed; None if no package has it."""
    part, rest = split_contrib(name)
    if part == "slim" or (rest and any(_overlap(rest, each) for each in renamed.SLIM.get(part, ()))):
        return "tf_slim"
    return None


def has_stand_in(name: str) -> bool:
    """Whether an import of `name` gives an object that fails only when it is used."""
    return name.split(".")[0] in ("contrib", "examples", "models") and replacement(name) is not None


def replacement(name: str) -> Optional[str]:
    """What to write in place of `name`; None for a name that is supplied, or that TensorFlow 2 may have."""
    if is_supplied(name):
        return None
    if supplying_package(name):
        return _SLIM
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        found = REPLACEMENTS.get(".".join(parts[:end]))
        if found is not None:
            return found
    return REMOVED_SINCE[parts[0]][1] if parts[0] in REMOVED_SINCE else None


def split_contrib(name: str) -> Tuple[str, str]:
    """Split a name of tf.contrib into its part and the rest: ("layers", "conv2d"). Other names: ("", name).

    contrib.layers.python.layers.layers.conv2d gives the same: contrib kept its files in folders named `python`, and
    programs import from these.
    """
    if not name.startswith("contrib."):
        return "", name
    part, _, rest = name[len("contrib.") :].partition(".")
    if rest.startswith("python.") and not any(_overlap(rest, each) for each in CONTRIB.get(part, ())):
        known = supplied_names(part) + renamed.SLIM.get(part, ())
        words = rest.split(".")
        last = max([at for at, word in enumerate(words) if word in known] or [len(words) - 1])
        rest = ".".join(words[last:])
    return part, rest


def supplied_names(part: str) -> Tuple[str, ...]:
    """The names of a part of contrib that need no package; empty for an unknown part."""
    return CONTRIB.get(part, ()) + tuple(renamed.CONTRIB.get(part, ()))


def is_within(name: str, outer: str) -> bool:
    """Whether `name` is `outer` or lies below it."""
    return name == outer or name.startswith(outer + ".")


def _overlap(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)
