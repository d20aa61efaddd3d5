"""Supply fully_connected and conv2d. The variables of these layers are named `weights` and
`biases`. The default activation is relu."""

from functools import partial

import tensorflow.compat.v1 as tf
from tensorflow.contrib.framework import add_arg_scope
from tensorflow.contrib.layers.plain import add_to_collections, pair
from tensorflow.contrib.layers.weights import xavier_initializer

_MODEL = tf.GraphKeys.MODEL_VARIABLES


def variable(name, shape, dtype, initializer, regularizer, trainable, collections):
    """Return a model variable. `collections`: the additional collections of the variable. A list
    applies to every variable; a dict has one list per name of a variable."""
    more = collections.get(name) if isinstance(collections, dict) else collections
    names = [tf.GraphKeys.GLOBAL_VARIABLES, _MODEL, *(more or [])]
    return tf.get_variable(
        name, shape, dtype, initializer, regularizer, trainable=trainable, collections=names
    )


def _add_biases_and_activate(
    outputs,
    make_biases,
    initializer,
    activation_fn,
    normalizer_fn,
    normalizer_params,
    layout="NHWC",
):
    """Return the outputs of a layer after normalization and activation. Without normalization,
    biases are added, unless their `initializer` is None.

    `make_biases`: a function that creates the variable `biases`."""
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    elif initializer is not None:
        outputs = tf.nn.bias_add(outputs, make_biases(initializer=initializer), data_format=layout)
    return activation_fn(outputs) if activation_fn is not None else outputs


@add_arg_scope
def fully_connected(
    inputs,
    num_outputs,
    activation_fn=tf.nn.relu,
    normalizer_fn=None,
    normalizer_params=None,
    weights_initializer=xavier_initializer(),
    weights_regularizer=None,
    biases_initializer=tf.zeros_initializer(),
    biases_regularizer=None,
    reuse=None,
    variables_collections=None,
    outputs_collections=None,
    trainable=True,
    scope=None,
):
    if not isinstance(num_outputs, int):
        raise ValueError("num_outputs type should be one of [int], got %s" % type(num_outputs))
    with tf.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        make = partial(
            variable,
            dtype=inputs.dtype.base_dtype,
            trainable=trainable,
            collections=variables_collections,
        )
        shape = [inputs.shape[-1], num_outputs]
        kernel = make(
            "weights", shape, initializer=weights_initializer, regularizer=weights_regularizer
        )
        product = (
            tf.matmul(inputs, kernel)
            if inputs.shape.ndims == 2
            else tf.tensordot(inputs, kernel, 1)
        )
        outputs = _add_biases_and_activate(
            product,
            partial(make, "biases", [num_outputs], regularizer=biases_regularizer),
            biases_initializer,
            activation_fn,
            normalizer_fn,
            normalizer_params,
        )
        return add_to_collections(outputs_collections, outputs)


@add_arg_scope
def conv2d(
    inputs,
    num_outputs,
    kernel_size,
    stride=1,
    padding="SAME",
    data_format=None,
    rate=1,
    activation_fn=tf.nn.relu,
    normalizer_fn=None,
    normalizer_params=None,
    weights_initializer=xavier_initializer(),
    weights_regularizer=None,
    biases_initializer=tf.zeros_initializer(),
    biases_regularizer=None,
    reuse=None,
    variables_collections=None,
    outputs_collections=None,
    trainable=True,
    scope=None,
):
    layout = data_format or "NHWC"
    with tf.variable_scope(scope, "Conv", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        make = partial(
            variable,
            dtype=inputs.dtype.base_dtype,
            trainable=trainable,
            collections=variables_collections,
        )
        shape = [*pair(kernel_size), inputs.shape[1 if layout == "NCHW" else -1], num_outputs]
        kernel = make(
            "weights", shape, initializer=weights_initializer, regularizer=weights_regularizer
        )
        convolved = tf.nn.convolution(
            inputs,
            kernel,
            padding,
            strides=pair(stride),
            dilation_rate=pair(rate),
            data_format=layout,
        )
        outputs = _add_biases_and_activate(
            convolved,
            partial(make, "biases", [num_outputs], regularizer=biases_regularizer),
            biases_initializer,
            activation_fn,
            normalizer_fn,
            normalizer_params,
            layout,
        )
        return add_to_collections(outputs_collections, outputs)
