"""tf.contrib.learn: only the reader of MNIST."""

from tensorflow.contrib.learn.python.learn import datasets

__all__ = ["datasets"]
