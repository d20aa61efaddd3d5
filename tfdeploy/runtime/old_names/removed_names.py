"""List the names that TensorFlow 2 no longer has, each with its replacement.

A replacement is an object that tfdeploy or a package supplies, or advice on what to write instead.

Both the planner and the task use these tables. Names are written without the leading `tf.`:
"contrib.slim", "train.SummaryWriter". The sources are the table of TensorFlow's upgrade script from
0.x to 1.0 (tensorflow/tools/compatibility/tf_upgrade.py), and the `__init__.py` of each part of
tf.contrib in TensorFlow 1.15.
"""

from __future__ import annotations

from . import slim_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple


def _parse_names(text: str) -> Dict[str, str]:
    """Parse a list of names: "mul=multiply abs" gives {"mul": "multiply", "abs": "abs"}."""
    return {old: new or old for old, _, new in (pair.partition("=") for pair in text.split())}


def _parse_names_in(target: str, names: str) -> Dict[str, str]:
    """Parse a list of names as `_parse_names` does. Return old name -> new name.

    Each new name begins with the module `target`."""
    return {old: "%s.%s" % (target, new) for old, new in _parse_names(names).items()}


_BATCH = """
    cholesky cholesky_solve fft fft2d fft3d ifft ifft2d ifft3d matrix_band_part matrix_determinant
    matrix_diag matrix_diag_part matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls
    matrix_transpose matrix_triangular_solve self_adjoint_eig self_adjoint_eigvals svd
"""
# Names that TensorFlow 1.0 renamed. version0.py adapts the functions whose arguments have changed.
_VERSION0: Dict[str, str] = {
    **{"batch_" + name: name for name in _BATCH.split()},
    **_parse_names("""
        audio_summary=summary.audio batch_matmul=matmul complex_abs=abs concat_v2=concat
        histogram_summary=summary.histogram
        image.per_image_whitening=image.per_image_standardization image_summary=summary.image
        inv=reciprocal list_diff=setdiff1d listdiff=setdiff1d merge_all_summaries=summary.merge_all
        merge_summary=summary.merge mul=multiply neg=negative
        nn.bidirectional_rnn=nn.static_bidirectional_rnn nn.deconv2d=nn.conv2d_transpose
        nn.rnn=nn.static_rnn nn.state_saving_rnn=nn.static_state_saving_rnn pack=stack
        scalar_summary=summary.scalar select=where sub=subtract
        train.SummaryWriter=summary.FileWriter train.SummaryWriterCache=summary.FileWriterCache
        train.SyncReplicasOptimizerV2=train.SyncReplicasOptimizer unpack=unstack
    """),
}

_CELLS = """
    BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple
    MultiRNNCell RNNCell ResidualWrapper
"""
# Names of tf.contrib that exist elsewhere with the same meaning. For each module of tf.contrib: old
# name -> present name.
_MOVED: Dict[str, Dict[str, str]] = {
    "cluster_resolver": _parse_names_in(
        "distribute.cluster_resolver",
        """
        ClusterResolver GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver
        SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver
        UnionClusterResolver=UnionResolver
        """,
    ),
    "data": {
        **_parse_names_in(
            "data.experimental",
            """
            AUTOTUNE Counter CsvDataset Optional RandomDataset SqlDataset TFRecordWriter
            bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_sparse_batch
            enumerate_dataset get_next_as_optional get_single_element group_by_reducer
            group_by_window ignore_errors make_batched_features_dataset make_csv_dataset
            make_saveable_from_iterator map_and_batch parallel_interleave parse_example_dataset
            prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat
            unbatch unique
            """,
        ),
        **_parse_names_in(
            "data", "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset"
        ),
    },
    "deprecated": _parse_names(
        "audio_summary histogram_summary image_summary merge_all_summaries merge_summary "
        "scalar_summary"
    ),
    "distributions": _parse_names_in(
        "distributions",
        """
        Bernoulli Beta Categorical Dirichlet DirichletMultinomial Distribution Exponential
        FULLY_REPARAMETERIZED Gamma Laplace Multinomial NOT_REPARAMETERIZED Normal RegisterKL
        ReparameterizationType StudentT Uniform kl=kl_divergence kl_divergence
        """,
    ),
    "framework": _parse_names(
        "TensorSpec argsort is_tensor load_checkpoint=train.load_checkpoint sort"
    ),
    "lookup": _parse_names_in(
        "python.ops.lookup_ops",
        """
        KeyValueTensorInitializer MutableHashTable TextFileIdTableInitializer TextFileIndex
        TextFileInitializer TextFileStringTableInitializer index_table_from_file
        index_table_from_tensor index_to_string_table_from_file index_to_string_table_from_tensor
        string_to_index_table_from_file=index_table_from_file
        string_to_index_table_from_tensor=index_table_from_tensor
        """,
    ),
    "rnn": {
        **_parse_names_in("nn.rnn_cell", _CELLS),
        **_parse_names_in("nn", "static_bidirectional_rnn static_rnn static_state_saving_rnn"),
    },
    "signal": _parse_names_in(
        "signal",
        """
        frame hamming_window hann_window inverse_stft inverse_stft_window_fn
        linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms overlap_and_add stft
        """,
    ),
    "staging": _parse_names_in("python.ops.data_flow_ops", "StagingArea"),
    "summary": _parse_names_in(
        "python.ops.summary_ops_v2",
        """
        all_summary_ops=all_v2_summary_ops always_record_summaries audio create_file_writer
        create_summary_file_writer eval_dir flush generic graph histogram image import_event
        initialize never_record_summaries record_summaries_every_n_global_steps scalar
        should_record_summaries summary_writer_initializer_op
        """,
    ),
    "util": _parse_names("constant_value=get_static_value make_ndarray make_tensor_proto"),
}

# Old name -> a name of tf.compat.v1 with the same meaning. If this new name begins with "python.",
# it is in an internal module of TensorFlow instead.
RENAMED: Dict[str, str] = {
    **_VERSION0,
    **{
        "contrib.%s.%s" % (part, old): new
        for part, names in _MOVED.items()
        for old, new in names.items()
    },
}
# Module of tf.contrib -> the module of another package that replaces it.
MODULES: Dict[str, str] = {
    "contrib.framework.nest": "tensorflow.python.util.nest",
    "contrib.learn.datasets.mnist": "tensorflow.examples.tutorials.mnist.input_data",
    "contrib.learn.python.learn.datasets.mnist": "tensorflow.examples.tutorials.mnist.input_data",
    "contrib.tensorboard.plugins.projector": "tensorboard.plugins.projector",
}

# Names of tf.contrib that supplied/contrib defines, with the behaviour of TensorFlow 1.15.
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
        "learn": "ModeKeys",
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

_SLIM = (
    "the package tf_slim, which has the same names; a line `tf_slim` in the requirements of "
    "`setup:` installs it"
)
# Names -> what to write instead. An entry also applies to all names below its names. If several
# entries apply to a name, the one with the longest name is used. `nn.seq2seq` of TensorFlow 0.x has
# no successor.
_REPLACEMENTS = """
contrib: a TensorFlow 1 program may use tf.layers, tf.nn, tf.train and tf.data in its place
contrib.cluster_resolver: tf.distribute.cluster_resolver
contrib.crf: `pip install tensorflow_addons` (tfa.text), or tf.keras.layers
contrib.cudnn_rnn: tf.nn.rnn_cell, or tf.keras.layers.LSTM and GRU, which use cuDNN by themselves
contrib.data: tf.data, most of it as tf.data.experimental
contrib.distribute: tf.distribute
contrib.distributions: tf.distributions, or `pip install tensorflow_probability`
contrib.eager: tf.GradientTape and tf.Variable, which are part of TensorFlow 2
contrib.estimator contrib.learn: tf.keras, or a training loop with tf.train.MonitoredTrainingSession
contrib.ffmpeg: `pip install tensorflow_io`
contrib.image: tf.image, or `pip install tensorflow_addons` (tfa.image)
contrib.layers: tf.layers, tf.keras.layers or tf.feature_column
contrib.legacy_seq2seq contrib.seq2seq nn.seq2seq: `pip install tensorflow_addons` (tfa.seq2seq),\
 or tf.keras.layers
contrib.lite: tf.lite
contrib.lookup: tf.lookup
contrib.losses: tf.losses
contrib.metrics: tf.metrics
contrib.model_pruning contrib.quantize: `pip install tensorflow_model_optimization`
contrib.opt: the optimizers of tf.train
contrib.predictor: tf.saved_model.load
contrib.rnn: a cell of tf.nn.rnn_cell (LSTMCell, GRUCell) with tf.nn.dynamic_rnn or tf.nn.static_rnn
contrib.saved_model: tf.saved_model
contrib.signal: tf.signal
contrib.summary: tf.summary
contrib.session_bundle: tf.saved_model.simple_save
contrib.tensorboard: `from tensorboard.plugins import projector`
contrib.tensor_forest: `pip install tensorflow_decision_forests`
contrib.tpu: tf.tpu and tf.distribute.TPUStrategy
contrib.training: tf.train and tf.data
estimator: tf.keras, or a training loop with tf.train.MonitoredTrainingSession; or TensorFlow 2.15\
 or older
examples: only input_data and mnist of examples.tutorials.mnist are supplied: copy the example's\
 file into your code
models: copy the model's files into your code, from github.com/tensorflow/models
"""
REPLACEMENTS = {
    name: instead
    for names, _, instead in (line.partition(": ") for line in _REPLACEMENTS.strip().splitlines())
    for name in names.split()
}
_MNIST = ("examples.tutorials.mnist.input_data", "examples.tutorials.mnist.mnist")
_REMOVED_SINCE = {"estimator": (2, 16)}


def is_supplied(name: str) -> bool:
    """Return True if tfdeploy supplies this removed name, or a name in this removed module."""
    if not name.startswith("contrib."):
        packages = ("contrib", "examples", "examples.tutorials")
        return (
            name in packages
            or any(_is_within_or_contains(name, module) for module in _MNIST)
            or is_of_version0(name)
        )
    if any(_is_within_or_contains(name, module) for module in MODULES):
        return True
    part, inner_name = split_contrib(name)
    names = supplied_names(part)
    return bool(names) and (
        not inner_name or any(_is_within_or_contains(inner_name, each) for each in names)
    )


def is_of_version0(name: str) -> bool:
    """Return True if `name` is a name of TensorFlow 0.x that tfdeploy supplies.

    Examples: "mul", "train.SummaryWriter"."""
    return _find_longest_key(_VERSION0, name) is not None


def current_name(name: str) -> str:
    """Return the new name of something that TensorFlow has renamed: "contrib.rnn.GRUCell" gives
    "nn.rnn_cell.GRUCell". Names that were not renamed are returned unchanged."""
    part, inner_name = split_contrib(name)
    full = "contrib.%s.%s" % (part, inner_name) if part else name
    old = _find_longest_key(RENAMED, full)
    return name if old is None else RENAMED[old] + full[len(old) :]


def supplying_package(name: str) -> Optional[str]:
    """Return the package that supplies `name` on hosts where it is installed; None if none does."""
    part, inner_name = split_contrib(name)
    if part == "slim" or (
        inner_name
        and any(_is_within_or_contains(inner_name, each) for each in slim_names.NAMES.get(part, ()))
    ):
        return "tf_slim"
    return None


def has_stand_in(name: str) -> bool:
    """Return True if an import of `name` returns a stand-in, an object that raises an error only
    when the program uses the object."""
    return (
        name.split(".")[0] in ("contrib", "examples", "models")
        and replacement_hint(name) is not None
    )


def replacement_hint(name: str) -> Optional[str]:
    """Return what to write instead of `name`. Return None for a name that tfdeploy supplies, and
    for a name that TensorFlow 2 may still have."""
    if is_supplied(name):
        return None
    if supplying_package(name):
        return _SLIM
    known = _find_longest_key(REPLACEMENTS, name)
    return REPLACEMENTS[known] if known else None


def removed_since(name: str) -> Optional[Tuple[int, int]]:
    """Return the version of TensorFlow 2 that removed the name; None for a name that no version of
    TensorFlow 2 had."""
    return _REMOVED_SINCE.get(name.split(".")[0])


def split_contrib(name: str) -> Tuple[str, str]:
    """Split a name of tf.contrib into the module of tf.contrib and the name in this module.

    "contrib.layers.conv2d" gives ("layers", "conv2d"). "contrib.layers.python.layers.layers.conv2d"
    gives the same result, because tf.contrib had its files in folders named `python`, and programs
    import from these folders. Any other name gives ("", name)."""
    if not name.startswith("contrib."):
        return "", name
    part, _, inner_name = name[len("contrib.") :].partition(".")
    if inner_name.startswith("python."):
        known = supplied_names(part) + slim_names.NAMES.get(part, ())
        steps = inner_name.split(".")
        last = max([at for at, step in enumerate(steps) if step in known] or [len(steps) - 1])
        inner_name = ".".join(steps[last:])
    return part, inner_name


def supplied_names(part: str) -> Tuple[str, ...]:
    """Return the names of the module tf.contrib.PART that tfdeploy itself supplies, without another
    package. Return () for an unknown module."""
    return CONTRIB.get(part, ()) + tuple(_MOVED.get(part, ()))


def is_within(name: str, outer: str) -> bool:
    """Return True if `name` is `outer` or a name below `outer`."""
    return name == outer or name.startswith(outer + ".")


def _find_longest_key(table: Dict[str, Any], name: str) -> Optional[str]:
    """Return the longest key of the table that is `name` or a parent of `name`; None if there is no
    such key."""
    while name and name not in table:
        name = name.rpartition(".")[0]
    return name or None


def _is_within_or_contains(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)
