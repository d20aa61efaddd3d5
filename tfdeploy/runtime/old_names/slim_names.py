"""List the names of tf.contrib that the package tf_slim has, except those of `contrib.slim`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Tuple

# Module of tf.contrib -> its names that tf_slim has and that tfdeploy does not supply.
NAMES: Dict[str, Tuple[str, ...]] = {
    part: tuple(names.split())
    for part, names in {
        "framework": """
            add_model_variable arg_scope_func_key arg_scoped_arguments assert_or_get_global_step
            assign_from_checkpoint assign_from_values assign_from_values_fn current_arg_scope
            filter_variables get_graph_from_inputs get_local_variables get_model_variables
            get_name_scope get_unique_variable get_variable_full_name get_variables_by_name
            get_variables_by_suffix global_variable has_arg_scope local_variable model_variable
            variable VariableDeviceChooser
        """,
        "layers": """
            apply_regularization avg_pool3d bias_add conv1d conv2d_in_plane conv2d_transpose conv3d
            conv3d_transpose convolution convolution1d convolution2d_in_plane
            convolution2d_transpose convolution3d convolution3d_transpose dense_to_sparse elu gdn
            group_norm images_to_sequence initializers instance_norm l1_l2_regularizer layer_norm
            legacy_fully_connected legacy_linear legacy_relu max_pool3d maxout one_hot_encoding
            optimize_loss optimizers pool regularizers relu6 repeat separable_conv2d
            separable_convolution2d sequence_to_images softmax spatial_softmax stack sum_regularizer
            summarize_activation summarize_activations summarize_biases summarize_collection
            summarize_tensor summarize_tensors summarize_variables summarize_weights unit_norm utils
        """,
        "metrics": """
            aggregate_metric_map aggregate_metrics auc_using_histogram cohen_kappa count f1_score
            streaming_concat streaming_covariance streaming_curve_points streaming_dynamic_auc
            streaming_false_negative_rate streaming_false_positive_rate
            streaming_pearson_correlation streaming_sparse_average_precision_at_top_k
            streaming_sparse_precision_at_top_k
        """,
        "training": """
            StopAfterNEvalsHook SummaryAtEndHook add_gradients_summaries checkpoints_iterator
            clip_gradient_norms create_train_op evaluate_once evaluate_repeatedly
            get_or_create_eval_step multiply_gradients train wait_for_new_checkpoint
        """,
    }.items()
}
