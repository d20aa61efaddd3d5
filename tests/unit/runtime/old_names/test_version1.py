"""Test that `import tensorflow as tf` gives a program the TensorFlow 1 API.

Tests with a fake TensorFlow check the mechanism. The other tests run in one process with the real
TensorFlow.
"""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from support.files import idx

FAKE = {
    "tensorflow/__init__.py": "__version__ = '2.99.0'\nfrom tensorflow import "
    "compat, train\nnew = 'version 2'\n",
    "tensorflow/train.py": "version = 2",
    "tensorflow/compat/__init__.py": "from tensorflow.compat import v1",
    "tensorflow/compat/v1/__init__.py": (
        "from tensorflow.compat.v1 import train, nn\nplaceholder = 'version 1'\ndisabled = []\n"
        "def disable_v2_behavior(): disabled.append(True)\n"
    ),
    "tensorflow/compat/v1/train.py": "version = 1",
    "tensorflow/compat/v1/nn.py": "",
    "tensorflow/python/framework/ops.py": "",
    "absl/flags.py": "FLAGS = {}",
}
USE = (
    "import sys, tensorflow as tf; print(tf.train.version, getattr(tf, 'placeholder', None), "
    "len(tf.compat.v1.disabled))"
)


def test_only_task_with_compat_gets_version_1(run_python, fake_tensorflow):
    folder = fake_tensorflow(FAKE)
    assert run_python(USE, paths=[folder], TFDEPLOY_TASK_COMPAT="v1").stdout == "1 version 1 1\n"
    assert run_python(USE, paths=[folder], TFDEPLOY_TASK_COMPAT="none").stdout == "2 None 0\n"
    assert run_python(USE, paths=[folder]).stdout == "2 None 0\n"


def test_package_stays_real_tensorflow(run_python, fake_tensorflow):
    code = (
        "import sys, tensorflow as tf, tensorflow.compat.v1 as one\n"
        "from tensorflow.python.framework import ops\n"
        "print(tf is sys.modules['tensorflow'], tf.__spec__.loader is tf.__loader__, "
        "type(tf.__loader__).__name__)\n"
        "print(tf.new, one.placeholder, tf.__file__.endswith('packages/tensorflow/__init__.py'), "
        "tf.python.framework.ops is ops)"
    )
    done = run_python(code, paths=[fake_tensorflow(FAKE)], TFDEPLOY_TASK_COMPAT="v1")
    assert done.stdout == "True True SourceFileLoader\nversion 2 version 1 True True\n", done.stderr


def test_shell_spawned_process_and_pickle_use_same_version(run_python, fake_tensorflow, tmp_path):
    (tmp_path / "child.py").write_text(USE + "\ndef show(name): print(getattr(tf, name))")
    (tmp_path / "train.sh").write_text(f"exec {sys.executable} child.py\n")
    code = (
        "import multiprocessing, pickle, subprocess, child, tensorflow as tf\n"
        "if __name__ == '__main__':\n"
        "    subprocess.run(['bash', 'train.sh'], check=True)\n"
        "    print(pickle.loads(pickle.dumps(tf.compat.v1.disable_v2_behavior)) is "
        "tf.disable_v2_behavior)\n"
        "    p = multiprocessing.get_context('spawn').Process(target=child.show, "
        "args=('placeholder',))\n"
        "    p.start(); p.join()\n"
    )
    done = run_python(code, paths=[fake_tensorflow(FAKE)], TFDEPLOY_TASK_COMPAT="v1")
    assert done.stdout.splitlines() == [
        "1 version 1 1",
        "1 version 1 1",
        "True",
        "1 version 1 1",
        "version 1",
    ], done.stderr


def test_tensorflow_1_is_unchanged(run_python, fake_tensorflow):
    folder = fake_tensorflow(
        {**FAKE, "tensorflow/__init__.py": FAKE["tensorflow/__init__.py"].replace("2.99", "1.15")}
    )
    assert run_python(USE, paths=[folder], TFDEPLOY_TASK_COMPAT="v1").stdout == "2 None 0\n"


def test_unknown_tensorflow_is_imported_unchanged_with_message(run_python, fake_tensorflow):
    folder = fake_tensorflow({"tensorflow/__init__.py": "answer = 42"})
    done = run_python(
        "import tensorflow; print(tensorflow.answer)", paths=[folder], TFDEPLOY_TASK_COMPAT="v1"
    )
    assert done.stdout == "42\n"
    assert done.stderr.startswith("tfdeploy: version1 is not in effect here: AttributeError")


REAL = """
import json, pickle, sys
import tensorflow as tf
from tensorflow import keras
from tensorflow.contrib import layers
from tensorflow.contrib.framework import arg_scope, get_global_step
from tensorflow.contrib.learn.python.learn.datasets.mnist import read_data_sets
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.python.framework import ops
import tensorflow.compat.v1 as version1
import tensorflow.contrib.layers as also_layers

def failure(code):
    try:
        exec(compile(code, "program.py", "exec"), {"tf": tf})
    except (AttributeError, ImportError, FileNotFoundError, ValueError) as error:
        return type(error).__name__ + " " + str(error)

said = {}
import tensorflow.nn, tensorflow.train
said["parts"] = (
    tensorflow.nn.relu is version1.nn.relu and tensorflow.train.Saver is version1.train.Saver
)
said["v1"] = (
    tf.placeholder is version1.placeholder
    and not tf.executing_eagerly()
    and sys.modules["tensorflow"] is tf
)
tf.app.flags.DEFINE_string("log_dir", "/tmp/x", "defined by absl too")
tf.app.flags.DEFINE_integer("task_index", 0, "")
said["flags"] = [tf.app.flags.FLAGS.log_dir, tf.flags.FLAGS.task_index]
said["step"] = tf.contrib.framework.get_or_create_global_step() is get_global_step()

x = tf.placeholder(tf.float32, [None, 28, 28, 1])
training = tf.placeholder(tf.bool)
with arg_scope([layers.conv2d], padding="VALID", weights_regularizer=layers.l2_regularizer(0.5)):
    net = layers.conv2d(x, 4, [5, 5], normalizer_fn=layers.batch_norm, scope="conv1")
net = layers.dropout(layers.flatten(layers.max_pool2d(net, 2)), 0.5, is_training=training)
net = also_layers.fully_connected(
    net, 10, activation_fn=None, weights_initializer=layers.xavier_initializer()
)
net = layers.batch_norm(net, is_training=training, decay=0.5, scope="last")
said["variables"] = [v.op.name for v in tf.global_variables()]
said["losses"] = len(tf.losses.get_regularization_losses())
said["updates"] = len(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
mnist = input_data.read_data_sets("idx", one_hot=True, validation_size=20)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    images, labels = mnist.train.next_batch(8)
    out = session.run(net, {x: images.reshape(8, 28, 28, 1), training: True})
    moved = session.run("last/moving_mean:0")
    said["normalized"] = [
        list(out.shape), bool(abs(out.mean(0)).max() < 1e-3), bool(abs(moved).max() > 0)
    ]

said["sets"] = [each.num_examples for each in mnist]
said["sets"] += [list(images.shape), list(labels.shape), float(images.max()) <= 1.0]
in_order = [mnist.validation.next_batch(8, shuffle=False)[1].argmax(1).tolist() for _ in range(3)]
said["in order"] = [
    in_order[2][:4] == mnist.validation.labels[16:].argmax(1).tolist(),
    in_order[2][4:] == in_order[0][:4],
]
said["epochs"] = mnist.validation.epochs_completed
plain = read_data_sets("idx", reshape=False, dtype=tf.uint8, validation_size=0)
said["plain"] = [
    list(plain.test.images.shape), str(plain.test.images.dtype), plain.train.labels[:3].ndim
]
said["pickled"] = type(pickle.loads(pickle.dumps(mnist.test))) is type(mnist.test)
said["failures"] = [failure(code) for code in (
    "from tensorflow.contrib import slim",
    "import tensorflow.contrib.slim as slim",
    "tf.contrib.slim",
    "tf.contrib.opt",
    "from tensorflow.contrib.layers import bias_add",
    "tf.nn.seq2seq",
    "from tensorflow.models import rnn",
    "tf.contrib.crf",
    "from tensorflow.examples.tutorials.mnist import input_data as i; "
    "i.read_data_sets('elsewhere')",
    "from tensorflow.examples.tutorials.mnist import input_data as i; i.read_data_sets('idx')",
    "tf.no_such_name",
)]
with tf.Graph().as_default():
    greedy = tf.contrib.training.GreedyLoadBalancingStrategy(
        2, tf.contrib.training.byte_size_load_fn
    )
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_strategy=greedy)):
        said["balanced"] = [
            tf.get_variable("v%d" % size, [size]).device[-1] for size in (100, 10, 20, 60, 30, 5)
        ]
said["hasattr"] = [
    hasattr(tf.contrib, "slim"), hasattr(tf, "no_such_name"), hasattr(tf.contrib, "layers")
]
print(json.dumps(said))
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_real_tensorflow_has_version_1_names(run_python, tmp_path):
    idx.write(tmp_path / "idx", train=60, test=20)
    done = run_python(REAL, TFDEPLOY_TASK_COMPAT="v1")
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    failures = results.pop("failures")
    assert results == {
        "parts": True,
        "v1": True,
        "flags": ["/tmp/x", 0],
        "step": True,
        "variables": [
            "global_step",
            *(
                f"conv1/{name}"
                for name in (
                    "weights",
                    "BatchNorm/beta",
                    "BatchNorm/moving_mean",
                    "BatchNorm/moving_variance",
                )
            ),
            *(f"fully_connected/{name}" for name in ("weights", "biases")),
            *(f"last/{name}" for name in ("beta", "moving_mean", "moving_variance")),
        ],
        "losses": 1,
        "updates": 2,
        "normalized": [[8, 10], True, True],
        "sets": [40, 20, 20, [8, 784], [8, 10], True],
        "in order": [True, True],
        "epochs": 1,
        "plain": [[20, 28, 28, 1], "uint8", 1],
        "pickled": True,
        "balanced": ["0", "1", "1", "1", "1", "0"],
        "hasattr": [False, False, True],
    }
    assert [text.partition(" ")[0] for text in failures[:8]] == [
        *["ModuleNotFoundError"] * 2,
        *["AttributeError"] * 2,
        "ModuleNotFoundError",
        "AttributeError",
        "ModuleNotFoundError",
        "AttributeError",
    ]
    assert all(
        "program.py:1: tf." in text and "is not in TensorFlow 2; in its place: " in text
        for text in failures[:8]
    )
    assert all(
        name in failures[8]
        for name in (
            "FileNotFoundError",
            "t10k-labels-idx1-ubyte",
            "downloads nothing",
            "elsewhere",
        )
    )
    assert failures[9] == "ValueError Validation size should be between 0 and 60. Received: 5000."
    assert failures[10] == "AttributeError module 'tensorflow' has no attribute 'no_such_name'"
