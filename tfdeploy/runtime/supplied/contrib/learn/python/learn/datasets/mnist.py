"""The reader of MNIST, which TensorFlow 1 had in two places."""

from tensorflow.examples.tutorials.mnist.input_data import DataSet, Datasets, read_data_sets

__all__ = ["DataSet", "Datasets", "read_data_sets"]
