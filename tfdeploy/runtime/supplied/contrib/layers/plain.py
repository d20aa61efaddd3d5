"""Supply those layers of tf.contrib.layers that have no variables."""

import tensorflow.compat.v1 as tf
from tensorflow.contrib.framework import add_arg_scope


def pair(size):
    """Return [height, width]. A single number stands for both."""
    return [size, size] if isinstance(size, int) else list(size)


def collected(collections, outputs):
    if collections:
        tf.add_to_collections(collections, outputs)
    return outputs


@add_arg_scope
def flatten(inputs, outputs_collections=None, scope=None):
    with tf.name_scope(scope, "Flatten", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        size = inputs.shape[1:].num_elements()
        width = tf.reduce_prod(tf.shape(inputs)[1:]) if size is None else size
        return collected(
            outputs_collections,
            tf.reshape(inputs, [-1, width] if size is not None else tf.stack([-1, width])),
        )


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
        kept = (
            tf.where
            if hasattr(is_training, "graph")
            else (lambda asked, yes, no: yes if asked else no)
        )
        outputs = kept(
            is_training,
            tf.nn.dropout(inputs, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed),
            inputs,
        )
        return collected(outputs_collections, outputs)


@add_arg_scope
def max_pool2d(
    inputs,
    kernel_size,
    stride=2,
    padding="VALID",
    data_format="NHWC",
    outputs_collections=None,
    scope=None,
):
    return _pool(
        tf.nn.max_pool,
        "MaxPool2D",
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def avg_pool2d(
    inputs,
    kernel_size,
    stride=2,
    padding="VALID",
    data_format="NHWC",
    outputs_collections=None,
    scope=None,
):
    return _pool(
        tf.nn.avg_pool,
        "AvgPool2D",
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


def _pool(
    pool, name, inputs, kernel_size, stride, padding, data_format, outputs_collections, scope
):
    around = (lambda two: [1, 1, *two]) if data_format == "NCHW" else (lambda two: [1, *two, 1])
    with tf.name_scope(scope, name, [inputs]):
        outputs = pool(
            tf.convert_to_tensor(inputs),
            around(pair(kernel_size)),
            around(pair(stride)),
            padding,
            data_format=data_format,
        )
        return collected(outputs_collections, outputs)
