"""The training of towers.py with MirroredStrategy.

    python mirrored.py

Every GPU of this machine has a copy of the variables. Without a GPU two logical CPUs stand for
them.
"""

import argparse

import numpy as np
import tensorflow as tf

import rings

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600, help="Step to train up to")
parser.add_argument("--batch_size", type=int, default=64, help="Points per step of one replica")
parser.add_argument(
    "--checkpoints", default="checkpoints", help="Folder to save to, and to go on from"
)
args = parser.parse_args()


def devices():
    """None: all GPUs."""
    if tf.config.list_physical_devices("GPU"):
        return None
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["/cpu:0", "/cpu:1"]


class Model(tf.Module):
    """Two hidden layers."""

    def __init__(self):
        random, sizes = np.random.RandomState(1), [2, 32, 32, rings.RINGS]
        pairs = list(zip(sizes, sizes[1:]))
        mean = tf.VariableAggregation.MEAN
        self.weights = [
            tf.Variable((random.randn(a, b) * np.sqrt(2 / a)).astype(np.float32), aggregation=mean)
            for a, b in pairs
        ]
        self.biases = [tf.Variable(tf.zeros([b]), aggregation=mean) for _, b in pairs]

    def __call__(self, values):
        for weights, bias in zip(self.weights[:-1], self.biases):
            values = tf.nn.relu(values @ weights + bias)
        return values @ self.weights[-1] + self.biases[-1]


def main():
    strategy = tf.distribute.MirroredStrategy(devices())
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        model, step = Model(), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def train_step(points, labels):
        def of_one_replica(points, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(
                        labels=labels, logits=model(points)
                    )
                )
            variables = model.weights + model.biases
            gradients = tape.gradient(loss, variables)
            for variable, gradient in zip(variables, gradients):
                variable.assign_sub(0.2 * gradient)
            return loss

        return strategy.reduce(
            "mean", strategy.run(of_one_replica, args=(points, labels)), axis=None
        )

    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model, step=step), args.checkpoints, max_to_keep=3
    )
    last = manager.restore_or_initialize()
    print("replicas in sync: %d" % replicas)
    print(
        "going on from step %d of the last checkpoint" % step.numpy()
        if last
        else "starting at step 0"
    )

    random = np.random.RandomState(step.numpy())
    many = rings.batch(random, 100 * replicas * args.batch_size)
    batches = (
        tf.data.Dataset.from_tensor_slices(many)
        .shuffle(len(many[0]))
        .batch(replicas * args.batch_size)
        .repeat()
    )
    for points, labels in strategy.experimental_distribute_dataset(batches):
        if step >= args.steps:
            break
        loss = train_step(points, labels)
        step.assign_add(1)
        if step % 100 == 0:
            print("step %d loss %.3f" % (step.numpy(), loss.numpy()))
            manager.save(checkpoint_number=step)
    test, theirs = rings.batch(np.random.RandomState(2**20), 1000)
    right = tf.cast(tf.argmax(model(test), 1, output_type=tf.int32) == theirs, tf.float32)
    print("test accuracy: %.3f" % tf.reduce_mean(right).numpy())


if __name__ == "__main__":
    main()
