"""Handwritten digits, Keras `fit` on several hosts.

Every worker computes a part of each batch on all its GPUs.

Start one process per worker, each with TF_CONFIG in its environment, for example on one machine:

    export TF_USE_LEGACY_KERAS=1
    TF_CONFIG='{"cluster": {"worker": ["localhost:2222", "localhost:2223"]},
        "task": {"type": "worker", "index": 0}}' python train.py
    TF_CONFIG='{"cluster": {"worker": ["localhost:2222", "localhost:2223"]},
        "task": {"type": "worker", "index": 1}}' python train.py

Without TF_CONFIG it trains alone.
"""

import argparse
import os

import numpy as np
import tensorflow as tf

TEST = 360


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6, help="Epoch to train up to")
    parser.add_argument("--batch_size", type=int, default=32, help="Digits per step of one worker")
    parser.add_argument(
        "--checkpoints", default="checkpoints", help="Folder to save to, and to go on from"
    )
    parser.add_argument("--logs", default="logs", help="Folder for TensorBoard")
    return parser.parse_args()


def read():
    """Images [n, 8, 8, 1] and labels, shuffled the same way every time."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits.csv.gz")
    digits = np.random.RandomState(1797).permutation(np.loadtxt(path, delimiter=","))
    return (
        (digits[:, :64].reshape(-1, 8, 8, 1) / 16).astype(np.float32),
        digits[:, 64].astype(np.int64),
    )


def build():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(0.003), loss=loss, metrics=["accuracy"])
    return model


class Start(tf.keras.callbacks.Callback):
    """Says at which epoch the training begins."""

    said = False

    def on_epoch_begin(self, epoch, logs=None):
        if not self.said:
            print("going on from epoch %d" % epoch if epoch else "starting at epoch 0", flush=True)
        self.said = True


def main():
    args = parse()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    workers = strategy.num_replicas_in_sync
    print("replicas in sync: %d" % workers)

    images, labels = read()
    batch = args.batch_size * workers
    train = (
        tf.data.Dataset.from_tensor_slices((images[TEST:], labels[TEST:]))
        .shuffle(2000, seed=1)
        .batch(batch, drop_remainder=True)
    )
    test = tf.data.Dataset.from_tensor_slices((images[:TEST], labels[:TEST])).batch(TEST)
    with strategy.scope():
        model = build()

    callbacks = [
        tf.keras.callbacks.BackupAndRestore(
            os.path.join(args.checkpoints, "backup"), delete_checkpoint=False
        ),
        tf.keras.callbacks.ModelCheckpoint(
            os.path.join(args.checkpoints, "weights"), save_weights_only=True
        ),
        tf.keras.callbacks.TensorBoard(args.logs),
        Start(),
    ]
    model.fit(train, epochs=args.epochs, callbacks=callbacks, verbose=2)
    _, accuracy = model.evaluate(test, verbose=0)
    print("test accuracy: %.3f" % accuracy)


if __name__ == "__main__":
    main()
