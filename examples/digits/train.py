"""Handwritten digits, distributed between-graph.

Parameter servers hold the weights, workers compute the gradients. Start one process per task, for
example on one machine:

    python train.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=ps --task_index=0
    python train.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=0
    python train.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=1
"""

import glob
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

flags = tf.app.flags
# The cluster
flags.DEFINE_string("ps_hosts", "localhost:2222", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "localhost:2223", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of the task within its job")
flags.DEFINE_integer(
    "issync", 0, "1: gradients of all workers are averaged into one step; 0: each applies its own"
)
# The training
flags.DEFINE_string("data", "data/digits", "Folder with the shards that make_shards.py writes")
flags.DEFINE_string("checkpoints", "checkpoints", "Folder to save to, and to go on from")
flags.DEFINE_integer("steps", 2000, "Global step to train up to")
flags.DEFINE_integer("batch_size", 64, "Digits per step of one worker")
flags.DEFINE_integer("hidden", 64, "Units of the hidden layer")
flags.DEFINE_float("learning_rate", 0.2, "Step width of gradient descent")
FLAGS = flags.FLAGS


def read_shards(pattern, first=0, every=1):
    """Images and labels of every `every`-th file that fits the pattern, from number `first` on."""
    paths = sorted(glob.glob(os.path.join(FLAGS.data, pattern)))
    if not paths:
        raise SystemExit("no %s in %s: python make_shards.py writes them" % (pattern, FLAGS.data))
    shards = [np.load(path) for path in (paths[first::every] or paths)]
    return (
        np.concatenate([s["images"] for s in shards]),
        np.concatenate([s["labels"] for s in shards]),
    )


def model(images):
    """Logits of a network with one hidden layer."""
    w1 = tf.get_variable(
        "w1", [64, FLAGS.hidden], initializer=tf.truncated_normal_initializer(stddev=0.1, seed=1)
    )
    b1 = tf.get_variable("b1", [FLAGS.hidden], initializer=tf.zeros_initializer())
    w2 = tf.get_variable(
        "w2", [FLAGS.hidden, 10], initializer=tf.truncated_normal_initializer(stddev=0.1, seed=2)
    )
    b2 = tf.get_variable("b2", [10], initializer=tf.zeros_initializer())
    return tf.matmul(tf.nn.relu(tf.matmul(images, w1) + b1), w2) + b2


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return

    is_chief = FLAGS.task_index == 0
    images, labels = read_shards("train-*.npz", FLAGS.task_index, len(worker_hosts))
    print("worker %d of %d reads %d digits" % (FLAGS.task_index, len(worker_hosts), len(images)))

    worker_device = "/job:worker/task:%d" % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker_device, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 64], name="x")
        y = tf.placeholder(tf.int32, [None], name="y")
        logits = model(x)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        )
        accuracy = tf.reduce_mean(
            tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32)
        )
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.GradientDescentOptimizer(FLAGS.learning_rate)
        hooks = []
        if FLAGS.issync:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer,
                replicas_to_aggregate=len(worker_hosts),
                total_num_replicas=len(worker_hosts),
            )
        train_op = optimizer.minimize(loss, global_step=global_step)
        if FLAGS.issync:
            hooks.append(optimizer.make_session_run_hook(is_chief))

    random = np.random.RandomState(FLAGS.task_index)
    saved = tf.train.latest_checkpoint(FLAGS.checkpoints)
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        checkpoint_dir=FLAGS.checkpoints,
        save_checkpoint_steps=500,
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
        hooks=hooks,
    ) as session:
        step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        if is_chief:
            print(
                "going on from step %s of the last checkpoint" % saved.rpartition("-")[2]
                if saved
                else "starting at step %d" % step
            )
        told = step - step % 100
        while step < FLAGS.steps:
            batch = random.randint(len(images), size=FLAGS.batch_size)
            _, current, step = session.run(
                [train_op, loss, global_step], feed_dict={x: images[batch], y: labels[batch]}
            )
            if step >= told + 100:
                told = step - step % 100
                print("step %d loss %.3f" % (step, current))
        if is_chief:
            test_images, test_labels = read_shards("test.npz")
            feed_dict = {x: test_images, y: test_labels}
            print(
                "test accuracy: %.3f"
                % session.run_step_fn(
                    lambda step_context: step_context.session.run(accuracy, feed_dict)
                )
            )
    print("worker %d ends at step %d" % (FLAGS.task_index, step))


if __name__ == "__main__":
    tf.app.run()
