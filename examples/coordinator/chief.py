"""A checkerboard, learned by a coordinator that hands out training steps to workers.

The variables are on parameter servers. This is the chief's part only: servers for the ps and the
workers must be running at the addresses in TF_CONFIG (train.py is the same training with the
servers' part in it).
"""

import argparse

import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1500, help="Step to train up to")
parser.add_argument(
    "--checkpoints", default="checkpoints", help="Folder to save to, and to go on from"
)
parser.add_argument(
    "--learning_rate", type=float, default=0.3, help="At the first step; at the last one it is 0"
)

UNITS = 64
STEPS_PER_EPOCH = 250


def checkerboard(random, count):
    """Points on a board of 3 x 3 fields, and the colour under each: 0 or 1."""
    points = random.uniform(-1, 2, size=[count, 2])
    return points.astype(np.float32), np.floor(points).sum(1).astype(np.int64) % 2


def dataset():
    """Endless batches; each worker shuffles its own."""
    return (
        tf.data.Dataset.from_tensor_slices(checkerboard(np.random.RandomState(0), 4000))
        .shuffle(4000)
        .repeat()
        .batch(64)
    )


class Model(tf.Module):
    """Two hidden layers."""

    def __init__(self):
        random = np.random.RandomState(1)
        sizes = [2, UNITS, UNITS, 2]
        pairs = list(zip(sizes, sizes[1:]))
        self.weights = [
            tf.Variable((random.randn(a, b) * np.sqrt(2 / a)).astype(np.float32)) for a, b in pairs
        ]
        self.biases = [tf.Variable(tf.zeros([b])) for _, b in pairs]

    def __call__(self, values):
        for weights, bias in zip(self.weights[:-1], self.biases):
            values = tf.nn.relu(values @ weights + bias)
        return values @ self.weights[-1] + self.biases[-1]

    def accuracy(self, points, labels):
        return float(tf.reduce_mean(tf.cast(tf.argmax(self(points), 1) == labels, tf.float32)))


def main(args):
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = Model()
        step = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function
    def train_step(iterator):
        points, labels = next(iterator)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=labels, logits=model(points)
            )
            loss = tf.reduce_mean(losses)
        variables = model.weights + model.biases
        # A busy worker's gradient comes late. Momentum would multiply that error.
        rate = args.learning_rate * (1 - tf.cast(step, tf.float32) / args.steps)
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(rate * gradient)
        step.assign_add(1)
        return loss

    checkpoint = tf.train.Checkpoint(model=model, step=step)
    manager = tf.train.CheckpointManager(
        checkpoint, args.checkpoints, max_to_keep=3, step_counter=step
    )
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint)
        print("going on from step %d of the last checkpoint" % step.numpy(), flush=True)
    else:
        print("starting at step 0", flush=True)

    batches = iter(coordinator.create_per_worker_dataset(dataset))
    while step.numpy() < args.steps:
        losses = [
            coordinator.schedule(train_step, args=(batches,))
            for _ in range(min(STEPS_PER_EPOCH, args.steps - int(step)))
        ]
        coordinator.join()
        print("step %d loss %.3f" % (step.numpy(), np.mean(coordinator.fetch(losses))), flush=True)
        manager.save(checkpoint_number=step)
    print(
        "test accuracy: %.3f" % model.accuracy(*checkerboard(np.random.RandomState(2**20), 1000)),
        flush=True,
    )


if __name__ == "__main__":
    main(parser.parse_args())
