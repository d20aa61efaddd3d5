"""Supply tf.contrib.metrics: the functions of tf.metrics, but with the predictions before the
labels, as in `streaming_accuracy(predictions, labels)`."""

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1.math import confusion_matrix
from tensorflow.compat.v1.metrics import mean as streaming_mean
from tensorflow.compat.v1.metrics import mean_tensor as streaming_mean_tensor
from tensorflow.compat.v1.metrics import percentage_below as streaming_percentage_less
from tensorflow.contrib.losses import accept_predictions_first

_AS_TODAY = """
    accuracy auc false_negatives false_positives mean_absolute_error mean_cosine_distance mean_iou
    mean_relative_error mean_squared_error precision precision_at_thresholds recall
    recall_at_thresholds root_mean_squared_error sensitivity_at_specificity
    specificity_at_sensitivity true_negatives true_positives
"""
_SWAPPED = {
    **{"streaming_" + name: name for name in _AS_TODAY.split()},
    "streaming_sparse_average_precision_at_k": "average_precision_at_k",
    "streaming_sparse_precision_at_k": "precision_at_k",
    "streaming_sparse_recall_at_k": "recall_at_k",
}


globals().update(
    {old: accept_predictions_first(getattr(tf.metrics, new)) for old, new in _SWAPPED.items()}
)


def accuracy(predictions, labels, weights=None, name=None):
    """Return the weighted share of predictions that equal the labels, for this batch only."""
    with tf.name_scope(name, "accuracy", [predictions, labels]):
        correct = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(correct)
        weights = tf.cast(weights, tf.float32)
        return tf.div(
            tf.reduce_sum(correct * weights), tf.reduce_sum(weights * tf.ones_like(correct))
        )


def streaming_recall_at_k(
    predictions,
    labels,
    k,
    weights=None,
    metrics_collections=None,
    updates_collections=None,
    name=None,
):
    """Return two tensors: the share of examples, over all batches, whose label is among the k
    largest predictions, and the operation that updates this share."""
    hits = tf.cast(tf.nn.in_top_k(predictions, labels, k), tf.float32)
    return streaming_mean(
        hits, weights, metrics_collections, updates_collections, name or "recall_at_%d" % k
    )
