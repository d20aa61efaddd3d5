"""Supply the layers, initializers and regularizers of tf.contrib.layers that programs use most. The
variables of the layers have the same names as in TensorFlow 1."""

import functools

from tensorflow.compat.v1.nn import relu as _relu
from tensorflow.contrib.layers.dense import conv2d, fully_connected
from tensorflow.contrib.layers.normalization import batch_norm
from tensorflow.contrib.layers.plain import avg_pool2d, dropout, flatten, max_pool2d
from tensorflow.contrib.layers.weights import (
    l1_regularizer,
    l2_regularizer,
    variance_scaling_initializer,
    xavier_initializer,
    xavier_initializer_conv2d,
)

convolution2d = conv2d
linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=_relu)
