"""Test names and calls of TensorFlow 0.x in one process with the real TensorFlow.

Each old call must give the same result as the call that replaces it today.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(
        importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed"
    ),
]

HEAD = """
import json
import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as one

said = {}
session = tf.Session()
a = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
whole = np.array([1, 0], np.int64)
hot = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
"""
CALLS = """
def same(old, new):
    for _ in range(2):
        old, new = ([old, new] if isinstance(old, list) else [[old], [new]])
    return all(np.array_equal(session.run(x), session.run(y)) for x, y in zip(old, new))

image = np.arange(48, dtype=np.float32).reshape(1, 4, 4, 3)
axis = tf.constant(1)
nn, now = tf.nn, one.nn
table, zeros = np.ones([4, 2], np.float32), np.zeros([4], np.float32)
classes = np.array([[1], [2]], np.int64)
sampled = (np.arange(4, dtype=np.int64), np.ones([2, 1], np.float32), np.ones([4], np.float32))
all_sampled = lambda: tuple(map(tf.constant, sampled))
pairs = {
    "mul": (tf.mul(a, a), one.multiply(a, a)),
    "sub": (tf.sub(a, 1.0), one.subtract(a, 1.0)),
    "neg": (tf.neg(a), one.negative(a)),
    "inv": (tf.inv(a), one.reciprocal(a)),
    "pack": (tf.pack([a, a]), one.stack([a, a])),
    "unpack": (tf.unpack(a), one.unstack(a)),
    "select": (tf.select(hot > 0, t=a, e=-a), one.where(hot > 0, a, -a)),
    "listdiff": (tf.listdiff([1, 2, 3], [2])[0], one.setdiff1d([1, 2, 3], [2])[0]),
    "complex_abs": (tf.complex_abs(tf.complex(a, a)), one.abs(tf.complex(a, a))),
    "batch_matmul": (tf.batch_matmul(a, a, adj_y=True), one.matmul(a, a, adjoint_b=True)),
    "batch_matmul in order": (tf.batch_matmul(a, a, None, True), one.matmul(a, a, adjoint_b=True)),
    "batch_matrix_inverse": (tf.batch_matrix_inverse(a), one.matrix_inverse(a)),
    "per_image_whitening": (
        tf.image.per_image_whitening(image[0]),
        one.image.per_image_standardization(image[0]),
    ),
    "concat": (tf.concat(1, [a, a]), one.concat([a, a], 1)),
    "concat by a tensor": (tf.concat(axis, [a, a]), one.concat([a, a], 1)),
    "concat by name": (tf.concat(concat_dim=1, values=[a, a]), one.concat([a, a], 1)),
    "concat_v2": (tf.concat_v2([a, a], 1), one.concat([a, a], 1)),
    "concat of today": (tf.concat([a, a], 1), one.concat([a, a], 1)),
    "concat of today by names": (tf.concat(axis=0, values=[a, a]), one.concat([a, a], 0)),
    "split": (tf.split(1, 2, a), one.split(a, 2, 1)),
    "split by name": (tf.split(split_dim=0, num_split=2, value=a), one.split(a, 2, 0)),
    "split half by name": (tf.split(0, 2, value=a), one.split(a, 2, 0)),
    "split of today": (tf.split(a, [1, 1], 1), one.split(a, [1, 1], 1)),
    "reverse": (tf.reverse(a, [False, True]), one.reverse(a, [1])),
    "reverse by name": (tf.reverse(a, dims=[True, False]), one.reverse(a, [0])),
    "reverse of today": (tf.reverse(a, [1]), one.reverse(a, [1])),
    "resize_images": (tf.image.resize_images(image, 2, 3), one.image.resize_images(image, [2, 3])),
    "resize_images of today": (
        tf.image.resize_images(image, [2, 3]),
        one.image.resize_images(image, [2, 3]),
    ),
    "reduce": (tf.reduce_mean(a, reduction_indices=[1]), one.reduce_mean(a, [1])),
    "softmax": (nn.softmax(a, dim=0), now.softmax(a, 0)),
    "nce_loss": (
        nn.nce_loss(table, zeros, a, classes, 4, 4, sampled_values=all_sampled()),
        now.nce_loss(table, zeros, classes, a, 4, 4, sampled_values=all_sampled()),
    ),
    "nce_loss of today": (
        nn.nce_loss(table, zeros, classes, a, 4, 4, sampled_values=all_sampled()),
        now.nce_loss(table, zeros, classes, a, 4, 4, sampled_values=all_sampled()),
    ),
}
said["different"] = [name for name, (old, new) in pairs.items() if not same(old, new)]
said["only on import tensorflow"] = [
    hasattr(one, "mul"), hasattr(one.train, "SummaryWriter"), one.train.Saver is tf.train.Saver
]
cell = nn.rnn_cell.BasicLSTMCell(3, state_is_tuple=True)
inputs = tf.unpack(tf.constant(np.ones([4, 2, 5], np.float32)))
said["rnn"] = len(nn.rnn(cell, inputs, dtype=tf.float32)[0])
from tensorflow.python.ops import rnn, rnn_cell
inputs = [tf.constant(a)] * 3
cell = rnn_cell.BasicLSTMCell(3)
said["rnn of python.ops"] = len(rnn.rnn(cell, inputs, dtype=tf.float32, scope="other")[0])
"""
SUMMARIES = """
with tf.name_scope("tower"):
    tf.scalar_summary("a tag with blanks", tf.constant(3.0))
    tf.histogram_summary("h", a)
    tf.image_summary("im", np.ones([2, 4, 4, 3], np.float32), max_images=1)
    tf.audio_summary("au", np.ones([1, 10], np.float32), 8000.0, max_outputs=1)
    tf.contrib.deprecated.scalar_summary(["x", "y"], [1.0, 2.0], name="both")
    other = tf.scalar_summary("elsewhere", 1.0, collections=["other"])
made = session.run(tf.merge_all_summaries())
said["tags"] = [value.tag for value in tf.Summary.FromString(made).value]
said["others"] = [
    tf.get_collection("other") == [other],
    session.run(tf.merge_summary([other])) == session.run(other),
]
graph = session.graph_def
Writer = tf.train.SummaryWriter
for writer in (Writer("log"), Writer("log", graph), Writer("log", graph_def=graph)):
    writer.add_summary(made, 1)
    writer.close()
"""
CROSS_ENTROPIES = """
def failure(function, *args, **kwargs):
    try:
        return session.run(function(*args, **kwargs)).tolist()
    except (TypeError, ValueError) as error:
        return type(error).__name__

for name, labels in (("softmax", hot), ("sigmoid", hot), ("sparse_softmax", whole)):
    function = getattr(tf.nn, name + "_cross_entropy_with_logits")
    right = failure(getattr(one.nn, name + "_cross_entropy_with_logits"), labels=labels, logits=a)
    said[name] = [right == each for each in (
        failure(function, a, labels),
        failure(function, tf.constant(a), tf.constant(labels), name="named"),
        failure(function, a, labels=labels),
        failure(function, None, labels, a),
        failure(function, labels=labels, logits=a),
    )]
    said[name + " of compat.v1"] = right == failure(
        getattr(one.nn, name + "_cross_entropy_with_logits"), a, labels
    )
sigmoid = tf.nn.sigmoid_cross_entropy_with_logits
sparse = tf.nn.sparse_softmax_cross_entropy_with_logits
said["targets"] = failure(sigmoid, logits=a, targets=hot) == failure(sigmoid, labels=hot, logits=a)
said["integer labels first"] = failure(sparse, whole, a) == failure(sparse, labels=whole, logits=a)
said["v2 and losses as ever"] = [
    failure(tf.nn.softmax_cross_entropy_with_logits_v2, hot, a)
    == failure(one.nn.softmax_cross_entropy_with_logits_v2, hot, a),
    failure(tf.losses.softmax_cross_entropy, hot, a)
    == failure(one.losses.softmax_cross_entropy, hot, a),
]
"""


@pytest.fixture
def run_and_read(run_python, tmp_path):
    """Return a function that runs code as a program. The function returns (value of the program's
    variable `said`, standard error).
    """

    def ask(code):
        (tmp_path / "train.py").write_text(HEAD + code + "\nprint(json.dumps(said))\n")
        done = run_python("import runpy; runpy.run_path('train.py')", TFDEPLOY_TASK_COMPAT="v1")
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return ask


def test_old_names_and_argument_orders_give_current_results(run_and_read):
    answers, _ = run_and_read(CALLS)
    assert answers == {
        "different": [],
        "only on import tensorflow": [False, False, True],
        "rnn": 4,
        "rnn of python.ops": 3,
    }


def test_summary_keeps_tag_with_blanks_and_without_scope(run_and_read):
    answers, _ = run_and_read(SUMMARIES)
    assert answers == {
        "tags": ["a tag with blanks", "h", "im/image", "au/audio", "x", "y"],
        "others": [True, True],
    }


def test_positional_arguments_of_cross_entropy_are_logits_and_labels(
    run_and_read,
):
    """Test that positional arguments are understood as (logits, labels), and that one message says
    so.

    tensorflow.compat.v1 would understand them as (labels, logits) and silently return another loss.
    """
    answers, errors = run_and_read(CROSS_ENTROPIES)
    assert answers == {
        **dict.fromkeys(("softmax", "sigmoid", "sparse_softmax"), [True] * 5),
        **dict.fromkeys(
            ("softmax of compat.v1", "sigmoid of compat.v1", "sparse_softmax of compat.v1"), False
        ),
        "targets": True,
        "integer labels first": True,
        "v2 and losses as ever": [True, True],
    }
    lines = [line for line in errors.splitlines() if line.startswith("tfdeploy: train.py:")]
    assert len(lines) == 3
    assert all("their order is taken to be (logits, labels)" in line for line in lines)
