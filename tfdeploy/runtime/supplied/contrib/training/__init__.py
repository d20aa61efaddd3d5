"""tf.contrib.training: which ps gets which variable, as `replica_device_setter(ps_strategy=)` asks,
and HParams.

As in tensorflow/contrib/training/python/training/device_setter.py of TensorFlow 1.15.
"""

import random

from tensorflow.contrib.training.hparams import HParams

__all__ = ["GreedyLoadBalancingStrategy", "HParams", "RandomStrategy", "byte_size_load_fn"]


def byte_size_load_fn(op):
    """The bytes of a variable whose shape is known."""
    output = op.outputs[0]
    shape = output.get_shape()
    shape.assert_is_fully_defined()
    return shape.num_elements() * output.dtype.size


class GreedyLoadBalancingStrategy(object):
    """Each variable goes to the ps that has the least load so far, by `load_fn`."""

    def __init__(self, num_tasks, load_fn):
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op):
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy(object):
    """Each variable goes to any ps; with the same seed in every process, to the same one in all of
    them."""

    def __init__(self, num_ps, seed=0):
        self._num_tasks = num_ps
        self._random = random.Random(seed)

    def __call__(self, op):
        return self._random.randrange(self._num_tasks)
