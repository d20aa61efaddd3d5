"""The names of tf.contrib that programs use most; supply.py has an answer for the rest."""

from tensorflow.contrib import framework, layers, learn, training

__all__ = ["framework", "layers", "learn", "training"]
