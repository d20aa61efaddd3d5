"""In-graph replication: this one client builds the whole graph and runs it.

The graph has a copy of the model on every worker. Servers must be running at the addresses (their
part has no graph: `tf.train.Server(...).join()`):

    python train.py --worker_hosts=localhost:2222,localhost:2223

The variables are on the first worker. Each worker computes the gradients of its part of a batch,
and their mean is applied.
"""

import argparse
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

parser = argparse.ArgumentParser()
parser.add_argument(
    "--worker_hosts", required=True, help="Comma-separated list of hostname:port pairs"
)
parser.add_argument("--steps", type=int, default=400, help="Step to train up to")
parser.add_argument("--batch_size", type=int, default=64, help="Points per step of one worker")
parser.add_argument(
    "--checkpoints", default="checkpoints", help="Folder to save to, and to go on from"
)
args = parser.parse_args()

CLASSES, FEATURES = 10, 20
CENTRES = np.random.RandomState(0).randn(CLASSES, FEATURES)


def clouds(random, count):
    """Points around ten centres, and which centre each belongs to."""
    labels = random.randint(CLASSES, size=count)
    return CENTRES[labels] + random.randn(count, FEATURES), labels


def logits_of(points):
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        weights = tf.get_variable(
            "weights", [FEATURES, CLASSES], initializer=tf.zeros_initializer()
        )
        bias = tf.get_variable("bias", [CLASSES], initializer=tf.zeros_initializer())
    return tf.matmul(points, weights) + bias


def device_setter(worker):
    """Variables on the first worker, everything else on this one."""
    return lambda op: (
        "/job:worker/task:%d" % (0 if op.type in ("VariableV2", "VarHandleOp") else worker)
    )


workers = args.worker_hosts.split(",")
points, labels = tf.placeholder(tf.float32, [None, FEATURES]), tf.placeholder(tf.int32, [None])
optimizer = tf.train.GradientDescentOptimizer(0.5)
losses, gradients = [], []
parts = zip(tf.split(points, len(workers)), tf.split(labels, len(workers)))
for worker, (part, its_labels) in enumerate(parts):
    with tf.device(device_setter(worker)):
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=its_labels, logits=logits_of(part)
        )
        losses.append(tf.reduce_mean(loss))
        gradients.append(optimizer.compute_gradients(losses[-1]))

with tf.device("/job:worker/task:0"):
    global_step = tf.train.get_or_create_global_step()
    means = [
        (tf.add_n([gradient for gradient, _ in pairs]) / len(workers), pairs[0][1])
        for pairs in zip(*gradients)
    ]
    train_op = optimizer.apply_gradients(means, global_step=global_step)
    mean_loss = tf.add_n(losses) / len(workers)
    right = tf.equal(tf.argmax(logits_of(points), 1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    saver = tf.train.Saver()

with tf.Session("grpc://" + workers[0]) as session:
    print(
        "devices: %s"
        % ", ".join(
            sorted(device.name for device in session.list_devices() if "CPU" in device.name)
        )
    )
    session.run(tf.global_variables_initializer())
    os.makedirs(args.checkpoints, exist_ok=True)
    last = tf.train.latest_checkpoint(args.checkpoints)
    if last:
        saver.restore(session, os.path.abspath(last))
    step = session.run(global_step)
    print("going on from step %d of the last checkpoint" % step if last else "starting at step 0")

    random = np.random.RandomState(step)
    while step < args.steps:
        some, theirs = clouds(random, args.batch_size * len(workers))
        _, current, step = session.run(
            [train_op, mean_loss, global_step], feed_dict={points: some, labels: theirs}
        )
        if step % 100 == 0:
            print("step %d loss %.3f" % (step, current))
            saver.save(
                session,
                os.path.abspath(os.path.join(args.checkpoints, "model.ckpt")),
                global_step=step,
            )
    count = 300 * len(workers)
    test, theirs = clouds(np.random.RandomState(2**20), count)
    print("test accuracy: %.3f" % session.run(accuracy, feed_dict={points: test, labels: theirs}))
