"""Supply the names of tf.contrib that programs use most. supply.py handles all other names."""

from tensorflow.contrib import framework, layers, learn, training

__all__ = ["framework", "layers", "learn", "training"]
