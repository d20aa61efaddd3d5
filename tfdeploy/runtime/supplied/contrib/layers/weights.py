"""Supply the initializers and regularizers of tf.contrib.layers."""

import tensorflow.compat.v1 as tf


def variance_scaling_initializer(
    factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=tf.float32
):
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError("Unknown mode %s [FAN_IN, FAN_OUT, FAN_AVG]" % mode)
    kind = "uniform" if uniform else "truncated_normal"
    # The default of `dtype` is not passed on, because TensorFlow warns that the argument is
    # deprecated.
    typed = {} if dtype == tf.float32 else {"dtype": dtype}
    return tf.variance_scaling_initializer(
        scale=factor, mode=mode.lower(), distribution=kind, seed=seed, **typed
    )


def xavier_initializer(uniform=True, seed=None, dtype=tf.float32):
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def l1_regularizer(scale, scope=None):
    return _regularizer(
        scale, scope, "l1_regularizer", lambda weights: tf.reduce_sum(tf.abs(weights))
    )


def l2_regularizer(scale, scope=None):
    return _regularizer(scale, scope, "l2_regularizer", tf.nn.l2_loss)


def _regularizer(scale, scope, name, loss):
    if scale < 0 or isinstance(scale, int):
        raise ValueError("scale must be a float of at least 0: %r" % (scale,))
    if scale == 0.0:
        return lambda weights: None

    def regularizer(weights):
        with tf.name_scope(scope, name, [weights]) as name_scope:
            factor = tf.convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return tf.multiply(factor, loss(weights), name=name_scope)

    return regularizer
