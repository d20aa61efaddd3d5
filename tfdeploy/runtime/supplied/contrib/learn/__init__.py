"""Supply ModeKeys of tf.contrib.learn: whether a model is trained, evaluated or used. The module
supply.py supplies the MNIST reader of tf.contrib.learn."""


class ModeKeys(object):
    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
