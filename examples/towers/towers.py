"""Towers: a copy of the model on every GPU of this machine.

    python towers.py

The variables and the averaged gradients are on the CPU. Without a GPU two towers share the CPU.
"""

import argparse
import os

import numpy as np
import tensorflow.compat.v1 as tf

import rings

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600, help="Step to train up to")
parser.add_argument("--batch_size", type=int, default=64, help="Points per step of one tower")
parser.add_argument(
    "--checkpoints", default="checkpoints", help="Folder to save to, and to go on from"
)
args = parser.parse_args()


def devices():
    """One per tower."""
    gpus = tf.config.experimental.list_physical_devices("GPU")
    return ["/gpu:%d" % index for index in range(len(gpus))] or ["/cpu:0", "/cpu:0"]


def variable(name, shape, initializer):
    with tf.device("/cpu:0"):
        return tf.get_variable(name, shape, initializer=initializer)


def logits_of(points):
    values, sizes = points, [2, 32, 32, rings.RINGS]
    for number, (before, after) in enumerate(zip(sizes, sizes[1:])):
        weights = variable("weights%d" % number, [before, after], tf.glorot_uniform_initializer())
        bias = variable("bias%d" % number, [after], tf.zeros_initializer())
        values = tf.matmul(tf.nn.relu(values) if number else values, weights) + bias
    return values


def average(towers):
    """The mean gradient of each variable, from the (gradient, variable) pairs of each tower."""
    return [
        (tf.reduce_mean(tf.stack([gradient for gradient, _ in pairs]), 0), pairs[0][1])
        for pairs in zip(*towers)
    ]


def main():
    places = devices()
    points, labels = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [None])
    optimizer = tf.train.AdamOptimizer(0.01)
    losses, gradients = [], []
    parts = zip(tf.split(points, len(places)), tf.split(labels, len(places)))
    for number, (device, (part, its_labels)) in enumerate(zip(places, parts)):
        with tf.device(device), tf.name_scope("tower%d" % number), tf.variable_scope(
            "model", reuse=number > 0
        ):
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=its_labels, logits=logits_of(part)
            )
            losses.append(tf.reduce_mean(loss))
            gradients.append(optimizer.compute_gradients(losses[-1]))
    with tf.device("/cpu:0"):
        global_step = tf.train.get_or_create_global_step()
        train_op = optimizer.apply_gradients(average(gradients), global_step=global_step)
        with tf.variable_scope("model", reuse=True):
            right = tf.equal(tf.argmax(logits_of(points), 1, output_type=tf.int32), labels)
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
        saver = tf.train.Saver()

    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run(tf.global_variables_initializer())
        last = tf.train.latest_checkpoint(args.checkpoints)
        if last:
            saver.restore(session, last)
        step = session.run(global_step)
        print("towers: %s" % ", ".join(places))
        print(
            "going on from step %d of the last checkpoint" % step if last else "starting at step 0"
        )

        os.makedirs(args.checkpoints, exist_ok=True)
        random = np.random.RandomState(step)
        while step < args.steps:
            some, theirs = rings.batch(random, args.batch_size * len(places))
            fed = {points: some, labels: theirs}
            _, current, step = session.run([train_op, losses[0], global_step], feed_dict=fed)
            if step % 100 == 0:
                print("step %d loss %.3f" % (step, current))
                saver.save(session, os.path.join(args.checkpoints, "model.ckpt"), global_step=step)
        test, theirs = rings.batch(np.random.RandomState(2**20), 1000)
        print(
            "test accuracy: %.3f" % session.run(accuracy, feed_dict={points: test, labels: theirs})
        )


if __name__ == "__main__":
    main()
