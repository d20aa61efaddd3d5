"""Data sets of tf.contrib.learn: only MNIST, read from a folder."""

from tensorflow.contrib.learn.python.learn.datasets import mnist

__all__ = ["mnist"]
