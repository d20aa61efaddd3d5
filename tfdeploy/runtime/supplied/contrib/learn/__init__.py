"""tf.contrib.learn: only the reader of MNIST, and the names of what a model is used for."""

from tensorflow.contrib.learn.python.learn import datasets

__all__ = ["ModeKeys", "datasets"]


class ModeKeys(object):
    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
