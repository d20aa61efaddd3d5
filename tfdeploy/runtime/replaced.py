"""What TensorFlow 2 has no more, by its old name, and what takes its place.

One table for the plan, which reads programs, and for the task, which runs them: pure values, no imports of ours.
Names are written without the leading `tf.`: "contrib.slim", "train.SummaryWriter".
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

# The names of tf.contrib that lie in supplied/contrib, each with the meaning it had in TensorFlow 1.15.
CONTRIB: Dict[str, Tuple[str, ...]] = {
    "framework": (
        "add_arg_scope",
        "arg_scope",
        "assert_global_step",
        "assign_from_checkpoint_fn",
        "create_global_step",
        "get_global_step",
        "get_or_create_global_step",
        "get_trainable_variables",
        "get_variables",
        "get_variables_to_restore",
        "init_from_checkpoint",
        "list_variables",
        "load_variable",
    ),
    "layers": (
        "avg_pool2d",
        "batch_norm",
        "conv2d",
        "convolution2d",
        "dropout",
        "flatten",
        "fully_connected",
        "l1_regularizer",
        "l2_regularizer",
        "linear",
        "max_pool2d",
        "relu",
        "variance_scaling_initializer",
        "xavier_initializer",
        "xavier_initializer_conv2d",
    ),
    "learn": ("datasets.mnist.read_data_sets", "python.learn.datasets.mnist.read_data_sets"),
    "training": ("GreedyLoadBalancingStrategy", "RandomStrategy", "byte_size_load_fn"),
}

_CONTRIB = "a TensorFlow 1 program may use tf.layers, tf.nn, tf.train and tf.data in its place"
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
    "contrib.framework": "`pip install tf_slim`: its functions have the same names",
    "contrib.framework.nest": "tf.nest",
    "contrib.framework.sort": "tf.sort",
    "contrib.image": "tf.image, or `pip install tensorflow_addons` (tfa.image)",
    "contrib.layers": "tf.layers or tf.keras.layers, or `pip install tf_slim`: its layers have the same names",
    "contrib.layers.optimize_loss": "an optimizer of tf.train and its minimize()",
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
    "contrib.rnn": "tf.nn.rnn_cell (it needs `pip install tf_keras`) with tf.nn.dynamic_rnn or tf.nn.static_rnn",
    "contrib.saved_model": "tf.saved_model",
    "contrib.seq2seq": _ADDONS.format("tfa.seq2seq"),
    "contrib.signal": "tf.signal",
    "contrib.slim": "`pip install tf_slim` and write `import tf_slim as slim`",
    "contrib.summary": "tf.summary",
    "contrib.tensorboard": "`from tensorboard.plugins import projector`",
    "contrib.tensor_forest": "`pip install tensorflow_decision_forests`",
    "contrib.tpu": "tf.tpu and tf.distribute.TPUStrategy",
    "contrib.training": "tf.train and tf.data",
    "contrib.training.HParams": "argparse.Namespace, or a class of your own",
    "examples": "only examples.tutorials.mnist.input_data is supplied: copy the example's file into your code",
    "models": "copy the model's files into your code, from github.com/tensorflow/models",
    # names of TensorFlow 0.x, which TensorFlow 1 had already renamed
    "audio_summary": "tf.summary.audio",
    "batch_cholesky": "tf.cholesky",
    "batch_matmul": "tf.matmul",
    "batch_matrix_diag": "tf.matrix_diag",
    "batch_matrix_inverse": "tf.matrix_inverse",
    "complex_abs": "tf.abs",
    "histogram_summary": "tf.summary.histogram",
    "image_summary": "tf.summary.image",
    "inv": "tf.reciprocal",
    "listdiff": "tf.setdiff1d",
    "merge_all_summaries": "tf.summary.merge_all",
    "merge_summary": "tf.summary.merge",
    "mul": "tf.multiply",
    "neg": "tf.negative",
    "pack": "tf.stack",
    "scalar_summary": "tf.summary.scalar",
    "select": "tf.where",
    "sub": "tf.subtract",
    "unpack": "tf.unstack",
    "nn.rnn": "tf.nn.static_rnn",
    "nn.bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "nn.seq2seq": _ADDONS.format("tfa.seq2seq"),
    "train.SummaryWriter": "tf.summary.FileWriter",
    "train.SyncReplicasOptimizerV2": "tf.train.SyncReplicasOptimizer",
}
# Names that went away within TensorFlow 2, and from which version on.
SINCE: Dict[str, Tuple[Tuple[int, int], str]] = {
    "estimator": ((2, 16), "tf.keras, or a training loop with tf.train.MonitoredTrainingSession; or TensorFlow 2.15 or older"),
}


def supplied(name: str) -> bool:
    """Whether `contrib.X` is there, or leads to what is there, or lies in it."""
    if not name.startswith("contrib."):
        return name in ("contrib", "examples", "examples.tutorials") or _within(name, "examples.tutorials.mnist.input_data")
    section, _, rest = name[len("contrib.") :].partition(".")
    return section in CONTRIB and (not rest or any(_within(rest, each) for each in CONTRIB[section]))


def in_place(name: str) -> Optional[str]:
    """What to write in place of `name`; None for a name that TensorFlow 2 may well have, or that is supplied."""
    parts = name.split(".")
    if parts[0] in ("contrib", "examples") and supplied(name):
        return None
    for end in range(len(parts), 0, -1):
        found = IN_PLACE.get(".".join(parts[:end]))
        if found is not None:
            return found
    return SINCE[parts[0]][1] if parts[0] in SINCE else None


def stands_in(name: str) -> bool:
    """Whether importing `name` gives a stand-in that fails when it is used."""
    return name.split(".")[0] in ("contrib", "examples", "models") and "." in name and in_place(name) is not None


def _within(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")
