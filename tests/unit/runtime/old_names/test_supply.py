"""Test the names of tf.contrib that tfdeploy supplies, in one process with the real TensorFlow.

Such a name stands for the present form of the module, for tf_slim if that is installed, or for a
replacement from tfdeploy.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(
        importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed"
    ),
]
ROOT = Path(__file__).parents[4]

HEAD = f"""
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as one
sys.path.insert(0, {str(ROOT)!r})
from tfdeploy.runtime.old_names import removed_names

said = {{}}
def failure(use):
    try:
        use()
    except (AttributeError, ImportError) as error:
        return "%s %s" % (type(error).__name__, error)
"""
NAMES = """
from tensorflow.contrib import rnn, util
from tensorflow.contrib.rnn import GRUCell
from tensorflow.contrib.rnn.python.ops import core_rnn_cell
from tensorflow.contrib.layers.python.layers import batch_norm, initializers, layers as layers_lib
from tensorflow.contrib.framework.python.ops import arg_scope, variables
from tensorflow.contrib.tensorboard.plugins import projector
from tensorflow.contrib.learn.python.learn.datasets import mnist as old_mnist
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.nn.rnn_cell import LSTMCell

def failing(name):
    part = tf.contrib
    for word in name.split("."):
        part = getattr(part, word)

names = [
    part + "." + name for part in removed_names.CONTRIB for name in removed_names.CONTRIB[part]
]
names += [name[len("contrib."):] for name in removed_names.RENAMED if name.startswith("contrib.")]
said["failing"] = [name for name in names if failure(lambda: failing(name))]
said["same"] = [
    rnn.GRUCell is GRUCell is core_rnn_cell.GRUCell is tf.nn.rnn_cell.GRUCell,
    rnn.LSTMCell is LSTMCell,
    layers_lib.conv2d is tf.contrib.layers.conv2d and batch_norm is tf.contrib.layers.batch_norm,
    initializers.xavier_initializer is tf.contrib.layers.xavier_initializer,
    arg_scope is tf.contrib.framework.arg_scope
    and variables.get_variables is tf.contrib.framework.get_variables,
    projector.ProjectorConfig().embeddings is not None,
    tf.contrib.learn.datasets.mnist is old_mnist is input_data,
    int(util.constant_value(tf.constant(3))) == 3,
]
said["star"] = "__all__" in dir(rnn) or sorted(rnn.__all__)[0]
"""
NUMBERS = """
from tensorflow.contrib import lookup, losses, metrics
from tensorflow.contrib.training import HParams
from tensorflow.examples.tutorials.mnist import mnist

a = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
hot, whole = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32), np.array([1, 0])
scores, truth = np.array([0.1, 0.8, 0.4]), np.array([0, 1, 1])
def at_end(pair):
    return session.run([pair[1], pair[0]])[0]

equal = {
    "softmax": (
        losses.softmax_cross_entropy(a, hot, 2.0),
        one.losses.softmax_cross_entropy(hot, a, 2.0),
    ),
    "sparse": (
        losses.sparse_softmax_cross_entropy(logits=a, labels=whole),
        one.losses.sparse_softmax_cross_entropy(whole, a),
    ),
    "sigmoid": (
        losses.sigmoid_cross_entropy(a, multi_class_labels=hot, weight=1.0),
        one.losses.sigmoid_cross_entropy(hot, a),
    ),
    "squares": (
        losses.mean_squared_error(a, hot, weight=2.0),
        one.losses.mean_squared_error(hot, a, 2.0),
    ),
    "log": (losses.log_loss(hot * 0.9, hot), one.losses.log_loss(hot, hot * 0.9)),
    "hinge": (tf.reduce_mean(losses.hinge_loss(a, hot)), one.losses.hinge_loss(hot, a)),
    "accuracy": (metrics.accuracy(whole, np.array([1, 1])), tf.constant(0.5)),
}
streams = {
    "auc": (
        metrics.streaming_auc(scores, truth, num_thresholds=9),
        one.metrics.auc(truth, scores, num_thresholds=9),
    ),
    "accuracy": (
        metrics.streaming_accuracy(truth, np.array([1, 1, 1])),
        one.metrics.accuracy(np.array([1, 1, 1]), truth),
    ),
    "precision": (
        metrics.streaming_precision(np.array([1, 1, 0]), truth),
        one.metrics.precision(truth, np.array([1, 1, 0])),
    ),
    "recall": (
        metrics.streaming_recall(np.array([1, 1, 0]), truth),
        one.metrics.recall(truth, np.array([1, 1, 0])),
    ),
    "mean": (metrics.streaming_mean(a), one.metrics.mean(a)),
    "below": (metrics.streaming_percentage_less(a, 2.5), one.metrics.percentage_below(a, 2.5)),
    "at k": (metrics.streaming_recall_at_k(a, whole, 1), one.metrics.mean([1.0, 0.0])),
}
words = lookup.index_to_string(tf.constant([[0, 1, 5]]), tf.constant(["a", "b"]), default_value="?")
table = lookup.HashTable(lookup.KeyValueTensorInitializer(["x"], [7]), -1)
ids = [
    lookup.string_to_index(tf.constant(["b", "z"]), ["a", "b"]),
    table.lookup(tf.constant(["x", "y"])),
]

images = tf.placeholder(tf.float32, [None, mnist.IMAGE_PIXELS])
labels = tf.placeholder(tf.int32, [None])
logits = mnist.inference(images, 8, 4)
loss = mnist.loss(logits, labels)
train, right = mnist.training(loss, 0.1), mnist.evaluation(logits, labels)
with tf.Session() as session:
    session.run([
        tf.global_variables_initializer(),
        tf.local_variables_initializer(),
        tf.tables_initializer(),
    ])
    said["unequal"] = [
        name for name, (old, new) in equal.items()
        if abs(session.run(old) - session.run(new)) > 1e-6
    ]
    said["unequal"] += [
        name for name, (old, new) in streams.items() if abs(at_end(old) - at_end(new)) > 1e-6
    ]
    said["words"] = [word.decode() for word in session.run(words)[0]]
    said["ids"] = [each.tolist() for each in session.run(ids)]
    feed = {images: np.ones([3, mnist.IMAGE_PIXELS]), labels: [1, 1, 1]}
    first = session.run(loss, feed)
    for _ in range(20):
        session.run(train, feed)
    said["mnist"] = [bool(session.run(loss, feed) < first), int(session.run(right, feed))]
    said["mnist"] += [v.op.name for v in tf.trainable_variables()][:2]

values = HParams(rate=0.1, layers=[64, 32], name="x", on=True, n=3)
values.parse("rate=1,layers=[1,2,3],on=false,name=y z,n=7,layers[1]=9")
said["values"] = [
    values.values(), "rate" in values, values.get("none", 4),
    json.loads(values.to_json()) == values.values(),
]
for wrong in ("m=1", "n=1.5", "n=x"):
    try:
        values.parse(wrong)
        said["values"].append("taken: " + wrong)
    except ValueError:
        pass
"""
STAND_INS = """
import tensorflow.contrib.seq2seq as seq2seq
from tensorflow.contrib import crf, session_bundle
from tensorflow.contrib.session_bundle import exporter
from tensorflow.contrib.rnn import LSTMBlockCell
from tensorflow.models.rnn import ptb
slim = tf.contrib.slim

def subclass():
    class Cell(LSTMBlockCell):
        pass

said["uses"] = [failure(use) for use in (
    lambda: exporter.Exporter(None),
    lambda: LSTMBlockCell(3),
    subclass,
    lambda: crf.crf_log_likelihood,
    lambda: seq2seq.BasicDecoder,
    lambda: slim.conv2d,
    lambda: ptb.reader,
)]
said["no instance"] = isinstance(3, LSTMBlockCell)

caught = []
try:
    import tensorflow.contrib.opt as opt
except ImportError as error:
    caught.append(type(error).__name__)
try:
    from tensorflow.contrib import opt
except ModuleNotFoundError as error:
    caught.append(error.name)
try:
    opt = tf.contrib.opt
except (AttributeError, KeyError) as error:
    caught.append(type(error).__name__)
def optional():
    from tensorflow.contrib.opt import LazyAdamOptimizer
try:
    optional()
except Exception:
    caught.append("further up")
try:
    from tensorflow.contrib import opt
except ImportError:
    print("said, and raised")
    raise
try:
    import tensorflow.contrib.tpu as tpu
except ValueError:
    pass
said["caught"] = [
    caught, hasattr(tf.contrib, "nccl"), getattr(tf.contrib, "nccl", None),
    type(opt).__name__, type(tpu).__name__,
]
"""
SLIM = {
    "tf_slim/__init__.py": (
        "from tf_slim.ops.arg_scope import *\nfrom tf_slim.ops.variables import *\nfrom "
        "tf_slim.layers import *\n"
        "from tf_slim import learning, nets"
    ),
    "tf_slim/ops/__init__.py": "",
    "tf_slim/ops/arg_scope.py": "def arg_scope(): pass\ndef add_arg_scope(f): return f",
    "tf_slim/ops/variables.py": "def model_variable(): pass",
    "tf_slim/layers/__init__.py": "from tf_slim.layers.layers import *",
    "tf_slim/layers/layers.py": "def conv2d(): pass\ndef repeat(): pass",
    "tf_slim/layers/utils.py": "def two(): pass",
    "tf_slim/learning.py": "def train_step(): pass",
    "tf_slim/nets/__init__.py": "",
    "tf_slim/nets/vgg.py": "",
}
WITH_SLIM = """
import tensorflow.contrib.slim as slim
from tensorflow.contrib import slim as also
from tensorflow.contrib.slim.nets import vgg
from tensorflow.contrib.slim.python.slim.learning import train_step
from tensorflow.contrib.layers.python.layers import utils
from tensorflow.contrib.layers import repeat, conv2d, fully_connected
from tensorflow.contrib.framework.python.ops import arg_scope, variables
import tf_slim, tf_slim.nets.vgg

said["same"] = [
    also is slim
    and slim.conv2d is tf_slim.conv2d is conv2d
    is tf.contrib.layers.conv2d is tf.contrib.slim.conv2d,
    vgg is tf_slim.nets.vgg is slim.nets.vgg,
    train_step is slim.learning.train_step,
    utils is sys.modules["tf_slim.layers.utils"],
    repeat is tf_slim.repeat,
    arg_scope is tf_slim.arg_scope is tf.contrib.framework.arg_scope,
    variables.model_variable is tf.contrib.framework.model_variable
    is tf_slim.ops.variables.model_variable,
    fully_connected.__module__ == "tensorflow.contrib.layers.dense",
]
said["nowhere"] = failure(lambda: slim.nothing)
"""


@pytest.fixture
def run_and_read(run_python, tmp_path):
    def ask(code, *paths):
        (tmp_path / "train.py").write_text(HEAD + code + "\nprint(json.dumps(said))\n")
        code = "import runpy; runpy.run_path('train.py')"
        done = run_python(code, paths=paths, TFDEPLOY_TASK_COMPAT="v1", TF_USE_LEGACY_KERAS="1")
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return ask


def test_every_name_is_found_also_by_path_of_old_file(run_and_read):
    assert run_and_read(NAMES) == {"failing": [], "same": [True] * 8, "star": "BasicLSTMCell"}


def test_old_calls_give_same_results_as_current_calls(run_and_read):
    assert run_and_read(NUMBERS) == {
        "unequal": [],
        "words": ["a", "b", "?"],
        "ids": [[1, -1], [7, -1]],
        "mnist": [True, 3, "hidden1/weights", "hidden1/biases"],
        "values": [
            {"rate": 1.0, "layers": [1, 9, 3], "name": "y z", "on": False, "n": 7},
            True,
            4,
            True,
        ],
    }


def test_import_of_missing_name_gives_stand_in_that_fails_on_use(run_and_read):
    answers = run_and_read(STAND_INS)
    assert all(
        "train.py:" in text and " is not in TensorFlow 2; in its place: " in text
        for text in answers["uses"]
    )
    names = (
        "session_bundle.exporter.Exporter",
        *["rnn.LSTMBlockCell"] * 2,
        "crf.crf_log_likelihood",
        "seq2seq.BasicDecoder",
    )
    for text, name in zip(answers["uses"], names, strict=False):
        assert f"tf.contrib.{name} is not" in text
    assert "a line `tf_slim` in the requirements of `setup:` installs it" in answers["uses"][5]
    assert not answers["no instance"]


def test_import_with_fallback_in_program_gives_no_stand_in(run_and_read):
    caught = ["ModuleNotFoundError", "tensorflow.contrib", "AttributeError", "further up"]
    assert run_and_read(STAND_INS)["caught"] == [
        caught,
        False,
        None,
        "ContribStandIn",
        "ContribStandIn",
    ]


def test_slim_and_layers_come_from_tf_slim_if_installed(run_and_read, fake_tensorflow):
    answers = run_and_read(WITH_SLIM, fake_tensorflow(SLIM))
    assert answers["same"] == [True] * 8
    assert "tf.contrib.slim.nothing is not in TensorFlow 2" in answers["nowhere"]


def test_broken_tf_slim_is_reported_and_replaced(run_and_read, fake_tensorflow):
    broken = {
        "tf_slim/__init__.py": "raise AttributeError('`Layer` is not available with Keras 3.')"
    }
    answers = run_and_read(
        "said['ours'] = tf.contrib.layers.conv2d.__module__", fake_tensorflow(broken)
    )
    assert answers == {"ours": "tensorflow.contrib.layers.dense"}
