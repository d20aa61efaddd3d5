"""Supply tf.contrib.losses: the functions of tf.losses, but with the predictions or logits before
the labels. The functions also accept `weight` in place of `weights`, as in TensorFlow 0.x."""

import functools
import inspect

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1.losses import (
    add_loss,
    compute_weighted_loss,
    get_losses,
    get_regularization_losses,
    get_total_loss,
)

_SWAPPED = """
    absolute_difference cosine_distance log_loss mean_pairwise_squared_error mean_squared_error
    sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy
"""


def accept_predictions_first(function):
    """Wrap a function that takes (labels, predictions or logits, ...). The wrapper takes
    (predictions or logits, labels, ...)."""
    _, name, *_ = inspect.signature(function).parameters

    @functools.wraps(function)
    def swapped(*args, **kwargs):
        if "weight" in kwargs:
            kwargs["weights"] = kwargs.pop("weight")
        if len(args) == 1:
            return function(**dict(kwargs, **{name: args[0]}))
        return function(*args[1::-1], *args[2:], **kwargs)

    return swapped


def hinge_loss(logits, labels=None, scope=None):
    """Return the hinge loss of each element. The loss is neither summed nor added to the losses of
    the graph."""
    with tf.name_scope(scope, "hinge_loss", [logits, labels]):
        signs = 2 * tf.cast(labels, tf.float32) - 1
        return tf.nn.relu(1 - signs * logits)


globals().update(
    {name: accept_predictions_first(getattr(tf.losses, name)) for name in _SWAPPED.split()}
)
