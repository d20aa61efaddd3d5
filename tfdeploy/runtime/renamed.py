"""Names that later TensorFlows have under another name, with the same meaning: pure tables, no imports of ours.

Sources: the table of TensorFlow's own upgrade script from 0.x to 1.0 (tensorflow/tools/compatibility/tf_upgrade.py), and the
`__init__.py` of each part of tf.contrib in TensorFlow 1.15. Names are written without the leading `tf.`; a target is a name
of tf.compat.v1, or below "python." a module of TensorFlow's own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Tuple


def _pairs(text: str) -> Dict[str, str]:
    """ "mul=multiply abs" -> {"mul": "multiply", "abs": "abs"}."""
    return {old: new or old for old, _, new in (word.partition("=") for word in text.split())}


def _of(target: str, names: str) -> Dict[str, str]:
    """The names of one part of contrib -> where each is now."""
    return {old: "%s.%s" % (target, new) for old, new in _pairs(names).items()}


_BATCH = """
    cholesky cholesky_solve fft fft2d fft3d ifft ifft2d ifft3d matrix_band_part matrix_determinant matrix_diag
    matrix_diag_part matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls matrix_transpose
    matrix_triangular_solve self_adjoint_eig self_adjoint_eigvals svd
"""
# What TensorFlow 1.0 renamed. Those without a function of the same arguments are made in version0.py.
VERSION0: Dict[str, str] = {
    **{"batch_" + name: name for name in _BATCH.split()},
    **_pairs("""
        audio_summary=summary.audio batch_matmul=matmul complex_abs=abs concat_v2=concat histogram_summary=summary.histogram
        image.per_image_whitening=image.per_image_standardization image_summary=summary.image inv=reciprocal
        list_diff=setdiff1d listdiff=setdiff1d merge_all_summaries=summary.merge_all merge_summary=summary.merge mul=multiply
        neg=negative nn.bidirectional_rnn=nn.static_bidirectional_rnn nn.deconv2d=nn.conv2d_transpose nn.rnn=nn.static_rnn
        nn.state_saving_rnn=nn.static_state_saving_rnn pack=stack scalar_summary=summary.scalar select=where sub=subtract
        train.SummaryWriter=summary.FileWriter train.SummaryWriterCache=summary.FileWriterCache
        train.SyncReplicasOptimizerV2=train.SyncReplicasOptimizer unpack=unstack
    """),
}

_CELLS = """
    BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell
    ResidualWrapper
"""
# Names of tf.contrib that are names of other places, with the same meaning: part -> its name -> the name today.
CONTRIB: Dict[str, Dict[str, str]] = {
    "cluster_resolver": _of(
        "distribute.cluster_resolver",
        """
        ClusterResolver GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver SlurmClusterResolver
        TFConfigClusterResolver TPUClusterResolver UnionClusterResolver=UnionResolver
        """,
    ),
    "data": {
        **_of(
            "data.experimental",
            """
            AUTOTUNE Counter CsvDataset Optional RandomDataset SqlDataset TFRecordWriter bucket_by_sequence_length
            choose_from_datasets copy_to_device dense_to_sparse_batch enumerate_dataset get_next_as_optional
            get_single_element group_by_reducer group_by_window ignore_errors make_batched_features_dataset
            make_csv_dataset make_saveable_from_iterator map_and_batch parallel_interleave parse_example_dataset
            prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat unbatch unique
            """,
        ),
        **_of("data", "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset"),
    },
    "deprecated": _pairs("audio_summary histogram_summary image_summary merge_all_summaries merge_summary scalar_summary"),
    "distributions": _of(
        "distributions",
        """
        Bernoulli Beta Categorical Dirichlet DirichletMultinomial Distribution Exponential FULLY_REPARAMETERIZED Gamma
        Laplace Multinomial NOT_REPARAMETERIZED Normal RegisterKL ReparameterizationType StudentT Uniform kl=kl_divergence
        kl_divergence
        """,
    ),
    "framework": _pairs("TensorSpec argsort is_tensor load_checkpoint=train.load_checkpoint sort"),
    "lookup": _of(
        "python.ops.lookup_ops",
        """
        KeyValueTensorInitializer MutableHashTable TextFileIdTableInitializer TextFileIndex TextFileInitializer
        TextFileStringTableInitializer index_table_from_file index_table_from_tensor index_to_string_table_from_file
        index_to_string_table_from_tensor string_to_index_table_from_file=index_table_from_file
        string_to_index_table_from_tensor=index_table_from_tensor
        """,
    ),
    "rnn": {
        **_of("nn.rnn_cell", _CELLS),
        **_of("nn", "static_bidirectional_rnn static_rnn static_state_saving_rnn"),
    },
    "signal": _of(
        "signal",
        """
        frame hamming_window hann_window inverse_stft inverse_stft_window_fn linear_to_mel_weight_matrix
        mfccs_from_log_mel_spectrograms overlap_and_add stft
        """,
    ),
    "staging": _of("python.ops.data_flow_ops", "StagingArea"),
    "summary": _of(
        "python.ops.summary_ops_v2",
        """
        all_summary_ops=all_v2_summary_ops always_record_summaries audio create_file_writer
        create_summary_file_writer eval_dir flush generic graph histogram image import_event initialize
        never_record_summaries record_summaries_every_n_global_steps scalar should_record_summaries
        summary_writer_initializer_op
        """,
    ),
    "util": _pairs("constant_value=get_static_value make_ndarray make_tensor_proto"),
}

# Modules of tf.contrib that are modules of other packages.
MODULES: Dict[str, str] = {
    "contrib.framework.nest": "tensorflow.python.util.nest",
    "contrib.tensorboard.plugins.projector": "tensorboard.plugins.projector",
}
# What the package tf_slim has of tf.contrib beside `contrib.slim`, under the same names: part -> names that tfdeploy has not.
SLIM: Dict[str, Tuple[str, ...]] = {
    part: tuple(names.split())
    for part, names in {
        "framework": """
            add_model_variable arg_scope_func_key arg_scoped_arguments assert_or_get_global_step assign_from_checkpoint
            assign_from_values assign_from_values_fn current_arg_scope filter_variables get_graph_from_inputs
            get_local_variables get_model_variables get_name_scope get_unique_variable get_variable_full_name
            get_variables_by_name get_variables_by_suffix global_variable has_arg_scope local_variable model_variable
            variable VariableDeviceChooser
        """,
        "layers": """
            apply_regularization avg_pool3d bias_add conv1d conv2d_in_plane conv2d_transpose conv3d conv3d_transpose
            convolution convolution1d convolution2d_in_plane convolution2d_transpose convolution3d
            convolution3d_transpose dense_to_sparse elu gdn group_norm images_to_sequence initializers instance_norm
            l1_l2_regularizer layer_norm legacy_fully_connected legacy_linear legacy_relu max_pool3d maxout
            one_hot_encoding optimize_loss optimizers pool regularizers relu6 repeat separable_conv2d
            separable_convolution2d sequence_to_images softmax spatial_softmax stack sum_regularizer
            summarize_activation summarize_activations summarize_biases summarize_collection summarize_tensor
            summarize_tensors summarize_variables summarize_weights unit_norm utils
        """,
        "metrics": """
            aggregate_metric_map aggregate_metrics auc_using_histogram cohen_kappa count f1_score
            streaming_concat streaming_covariance streaming_curve_points streaming_dynamic_auc
            streaming_false_negative_rate streaming_false_positive_rate streaming_pearson_correlation
            streaming_sparse_average_precision_at_top_k streaming_sparse_precision_at_top_k
        """,
        "training": """
            StopAfterNEvalsHook SummaryAtEndHook add_gradients_summaries checkpoints_iterator clip_gradient_norms
            create_train_op evaluate_once evaluate_repeatedly get_or_create_eval_step multiply_gradients train
            wait_for_new_checkpoint
        """,
    }.items()
}
