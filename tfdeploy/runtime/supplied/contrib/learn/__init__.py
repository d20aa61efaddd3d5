"""tf.contrib.learn: the names of what a model is used for; supply.py finds the reader of MNIST."""

__all__ = ["ModeKeys"]


class ModeKeys(object):
    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
