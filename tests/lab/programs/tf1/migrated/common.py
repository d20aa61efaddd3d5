"""Imports TensorFlow 1 for all other modules, as in programs that were moved to TensorFlow 2."""

try:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
except ImportError:
    import tensorflow as tf

__all__ = ["tf"]
