"""Supply tf.contrib.training: HParams, and the strategies for
`replica_device_setter(ps_strategy=)`, which choose a ps for each variable.

The strategies behave as in tensorflow/contrib/training/python/training/device_setter.py of
TensorFlow 1.15.
"""

import random

from tensorflow.contrib.training.hparams import HParams


def byte_size_load_fn(op):
    """Return the size of a variable in bytes. Raises ValueError if the variable's shape is not
    fully known."""
    output = op.outputs[0]
    shape = output.get_shape()
    shape.assert_is_fully_defined()
    return shape.num_elements() * output.dtype.size


class GreedyLoadBalancingStrategy(object):
    """A strategy that puts each variable on the ps with the least load so far, measured by
    `load_fn`."""

    def __init__(self, num_tasks, load_fn):
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op):
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy(object):
    """A strategy that puts each variable on a random ps. With the same seed, all processes choose
    the same ps."""

    def __init__(self, num_ps, seed=0):
        self._num_tasks = num_ps
        self._random = random.Random(seed)

    def __call__(self, op):
        return self._random.randrange(self._num_tasks)
