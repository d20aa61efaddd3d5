"""Supply those layers of tf.contrib.layers that have no variables."""

import tensorflow.compat.v1 as tf
from tensorflow.contrib.framework import add_arg_scope


def pair(size):
    """Return [height, width]. If `size` is a single number, it is used for both."""
    return [size, size] if isinstance(size, int) else list(size)


def add_to_collections(collections, outputs):
    if collections:
        tf.add_to_collections(collections, outputs)
    return outputs


@add_arg_scope
def flatten(inputs, outputs_collections=None, scope=None):
    with tf.name_scope(scope, "Flatten", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        size = inputs.shape[1:].num_elements()
        width = tf.reduce_prod(tf.shape(inputs)[1:]) if size is None else size
        return add_to_collections(outputs_collections, tf.reshape(inputs, [-1, width]))


@add_arg_scope
def dropout(
    inputs,
    keep_prob=0.5,
    noise_shape=None,
    is_training=True,
    outputs_collections=None,
    scope=None,
    seed=None,
):
    with tf.name_scope(scope, "Dropout", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        outputs = tf.nn.dropout(inputs, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed)
        if hasattr(is_training, "graph"):
            outputs = tf.where(is_training, outputs, inputs)
        elif not is_training:
            outputs = inputs
        return add_to_collections(outputs_collections, outputs)


def _make_pooling_layer(name, pool, default_scope):
    """Return the layer `name`, which calls the function `pool` of tf.nn."""

    def pool2d(
        inputs,
        kernel_size,
        stride=2,
        padding="VALID",
        data_format="NHWC",
        outputs_collections=None,
        scope=None,
    ):
        around = (lambda two: [1, 1, *two]) if data_format == "NCHW" else (lambda two: [1, *two, 1])
        size, strides = around(pair(kernel_size)), around(pair(stride))
        with tf.name_scope(scope, default_scope, [inputs]):
            inputs = tf.convert_to_tensor(inputs)
            outputs = pool(inputs, size, strides, padding, data_format=data_format)
            return add_to_collections(outputs_collections, outputs)

    pool2d.__name__ = name
    return add_arg_scope(pool2d)


max_pool2d = _make_pooling_layer("max_pool2d", tf.nn.max_pool, "MaxPool2D")
avg_pool2d = _make_pooling_layer("avg_pool2d", tf.nn.avg_pool, "AvgPool2D")
