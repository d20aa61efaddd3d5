"""Supply the names of tf.contrib that programs use most. The module supply.py handles all other
names of tf.contrib."""

from tensorflow.contrib import framework, layers, learn, training
