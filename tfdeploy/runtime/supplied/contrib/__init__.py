"""The few names of tf.contrib that distributed programs of TensorFlow 1 use; words for the rest come from absent.py."""

from tensorflow.contrib import framework, layers, learn, training

__all__ = ["framework", "layers", "learn", "training"]
