"""Test that programs can still use call arguments that TensorFlow has dropped.

Tests with a fake TensorFlow cover each form of such a call. Tests with the real TensorFlow cover
all calls.
"""

from __future__ import annotations

import importlib.util

import pytest

FAKE = {
    "tensorflow/__init__.py": "__version__ = '1.99'\nclass compat:\n    v1 = None\n",
    "tensorflow/python/training/sync_replicas_optimizer.py": """
class SyncReplicasOptimizer:
    def __init__(self, opt, replicas_to_aggregate, name="sync"%s):
        self.told = (opt, replicas_to_aggregate, name%s)
    def apply_gradients(self):
        pass
""",
}
USE = """
from tensorflow.python.training.sync_replicas_optimizer import SyncReplicasOptimizer
print(SyncReplicasOptimizer("sgd", 2, replica_id=1, name="x").told)
try:
    SyncReplicasOptimizer("sgd", 2, replicas_id=1)
except TypeError as error:
    print(error)
"""
MESSAGES = (
    "tfdeploy: SyncReplicasOptimizer(replica_id=...) means nothing in this TensorFlow and is "
    "ignored\n"
)
REAL = """
import tensorflow as tf
tf.app.flags.DEFINE_string("data", "here", "Where")
FLAGS = tf.app.flags.FLAGS
FLAGS._parse_flags()
step = tf.train.get_or_create_global_step()
weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
plain = tf.train.GradientDescentOptimizer(0.1)
optimizer = tf.train.SyncReplicasOptimizer(
    plain, replicas_to_aggregate=1, replica_id=0, total_num_replicas=1, use_locking=True
)
train = optimizer.minimize(tf.square(weight - 1.0), global_step=step)
clean_up = optimizer.get_clean_up_op()
cell = tf.nn.rnn_cell.BasicLSTMCell(4, forget_bias=0.5, input_size=3, state_is_tuple=True)
with tf.Session() as session:
    session.run(clean_up)
print(FLAGS.data, clean_up.type, cell.output_size)
"""


def fake(fake_tensorflow, parameters="", result_fields=""):
    return fake_tensorflow(
        {
            path: code.replace("%s", parameters, 1).replace("%s", result_fields)
            for path, code in FAKE.items()
        }
    )


def test_dropped_argument_is_ignored_with_message(run_python, fake_tensorflow):
    done = run_python(USE, paths=[fake(fake_tensorflow)], TFDEPLOY_TASK_COMPAT="v1")
    first, second = done.stdout.splitlines()
    assert first == "('sgd', 2, 'x')" and "replicas_id" in second
    assert done.stderr == MESSAGES


def test_argument_that_still_exists_is_passed(run_python, fake_tensorflow):
    folder = fake(fake_tensorflow, ", replica_id=None", ", replica_id")
    done = run_python(USE, paths=[folder], TFDEPLOY_TASK_COMPAT="v1")
    assert done.stdout.startswith("('sgd', 2, 'x', 1)\n") and done.stderr == ""


def test_without_compat_dropped_argument_is_error(run_python, fake_tensorflow):
    done = run_python(USE, paths=[fake(fake_tensorflow)], TFDEPLOY_TASK_COMPAT="none")
    assert "unexpected keyword argument 'replica_id'" in done.stderr


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed"
)
def test_all_dropped_arguments_with_real_tensorflow(run_python):
    done = run_python(REAL, TFDEPLOY_TASK_COMPAT="v1")
    assert done.stdout == "here QueueCloseV2 4\n", done.stderr
    assert MESSAGES in done.stderr and "BasicLSTMCell(input_size=...)" in done.stderr
