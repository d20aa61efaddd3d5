"""Supply batch_norm, with variables `beta`, `gamma`, `moving_mean` and `moving_variance`. By
default, the operations in UPDATE_OPS update the moving averages."""

import tensorflow.compat.v1 as tf
from tensorflow.contrib.framework import add_arg_scope
from tensorflow.contrib.layers.dense import variable
from tensorflow.contrib.layers.plain import add_to_collections
from tensorflow.python.training.moving_averages import assign_moving_average


@add_arg_scope
def batch_norm(
    inputs,
    decay=0.999,
    center=True,
    scale=False,
    epsilon=0.001,
    activation_fn=None,
    param_initializers=None,
    param_regularizers=None,
    updates_collections=tf.GraphKeys.UPDATE_OPS,
    is_training=True,
    reuse=None,
    variables_collections=None,
    outputs_collections=None,
    trainable=True,
    data_format="NHWC",
    scope=None,
):
    if data_format != "NHWC":
        raise ValueError(
            "tfdeploy supplies tf.contrib.layers.batch_norm only for the data_format NHWC; "
            "tf.layers.batch_normalization supports NCHW too"
        )
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        dtype, axes = inputs.dtype.base_dtype, list(range(inputs.shape.ndims - 1))
        given, penalties = param_initializers or {}, param_regularizers or {}

        def parameter(name, first, learned):
            shape, start = inputs.shape[-1:], given.get(name, first)
            return variable(
                name, shape, dtype, start, penalties.get(name), learned, variables_collections
            )

        beta = parameter("beta", tf.zeros_initializer(), trainable) if center else None
        gamma = parameter("gamma", tf.ones_initializer(), trainable) if scale else None
        moving_mean = parameter("moving_mean", tf.zeros_initializer(), False)
        moving_variance = parameter("moving_variance", tf.ones_initializer(), False)

        def batch():
            mean, variance = tf.nn.moments(inputs, axes)
            updates = [
                assign_moving_average(moving_mean, mean, decay, zero_debias=False),
                assign_moving_average(moving_variance, variance, decay, zero_debias=False),
            ]
            return mean, variance, updates

        mean, variance = _mean_and_variance(
            is_training, batch, moving_mean, moving_variance, updates_collections
        )
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs = activation_fn(outputs) if activation_fn is not None else outputs
        return add_to_collections(outputs_collections, outputs)


def _mean_and_variance(is_training, batch, moving_mean, moving_variance, updates_collections):
    """Return the mean and the variance to normalize with: those of the batch while training, else
    the moving averages.

    The operations that update the moving averages are added to `updates_collections`. If
    `updates_collections` is None, or if `is_training` is a tensor, these operations run whenever
    the result is computed."""

    def update_and_return():
        mean, variance, updates = batch()
        with tf.control_dependencies(updates):
            return tf.identity(mean), tf.identity(variance)

    def moving():
        return tf.identity(moving_mean), tf.identity(moving_variance)

    if hasattr(is_training, "graph"):
        # Which branch of tf.cond runs is known only when the graph runs, so the updates must be
        # part of the branch.
        return tf.cond(is_training, update_and_return, moving)
    if not is_training:
        return moving_mean, moving_variance
    if updates_collections is None:
        return update_and_return()
    mean, variance, updates = batch()
    for update in updates:
        tf.add_to_collections(updates_collections, update)
    return mean, variance
