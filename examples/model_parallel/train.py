"""Two spirals, told apart by a network whose layers live on different parameter servers.

The layers are placed by hand: the wide first ones lie on /job:ps/task:0, the last ones on
/job:ps/task:1. Start one process per task:

    python train.py --ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224 \
        --job_name=ps --task_index=0
    python train.py --ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224 \
        --job_name=ps --task_index=1
    python train.py --ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224 \
        --job_name=worker --task_index=0
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True, help="two hostname:port pairs, with a comma")
    parser.add_argument(
        "--worker_hosts", required=True, help="Comma-separated list of hostname:port pairs"
    )
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--steps", type=int, default=400, help="Global step to train up to")
    parser.add_argument(
        "--checkpoints", default="checkpoints", help="Folder to save to, and to go on from"
    )
    return parser.parse_args()


def spirals(random, count):
    """Points [count, 2] on two spirals with a little noise, and which of the two each is on."""
    labels = random.randint(2, size=count)
    turn = np.sqrt(random.rand(count)) * 2 * np.pi
    angle = turn + np.pi * labels
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 4
    points += 0.02 * random.randn(count, 2)
    return points.astype(np.float32), labels.astype(np.int32)


def layer(inputs, name, units):
    size = inputs.shape.as_list()[1]
    with tf.variable_scope(name):
        weights = tf.get_variable(
            "weights", [size, units], initializer=tf.glorot_uniform_initializer()
        )
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return tf.matmul(inputs, weights) + bias


def main():
    args = parse()
    cluster = tf.train.ClusterSpec(
        {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
        return

    is_chief = args.task_index == 0
    points, labels = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [None])
    with tf.device("/job:ps/task:0"):
        hidden = tf.nn.relu(layer(points, "first", 64))
        hidden = tf.nn.relu(layer(hidden, "second", 64))
    with tf.device("/job:ps/task:1"):
        hidden = tf.nn.relu(layer(hidden, "third", 32))
        logits = layer(hidden, "last", 2)
        global_step = tf.train.get_or_create_global_step()
    with tf.device("/job:worker/task:%d" % args.task_index):
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        accuracy = tf.reduce_mean(
            tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32)
        )
    train_op = tf.train.AdamOptimizer(0.005).minimize(
        loss, global_step=global_step, colocate_gradients_with_ops=True
    )

    # Read now: once the session is there, other workers may have trained on.
    last = tf.train.latest_checkpoint(args.checkpoints)
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        checkpoint_dir=args.checkpoints,
        save_checkpoint_steps=500,
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
    ) as session:
        step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        if is_chief:
            print(
                "going on from step %s of the last checkpoint" % last.rpartition("-")[2]
                if last
                else "starting at step 0"
            )
            for variable in tf.trainable_variables():
                print("%s is on %s" % (variable.op.name, variable.device))
        random = np.random.RandomState(args.task_index)
        told = step - step % 100
        while step < args.steps:
            some, theirs = spirals(random, 64)
            _, current, step = session.run(
                [train_op, loss, global_step], feed_dict={points: some, labels: theirs}
            )
            if step >= told + 100:
                told = step - step % 100
                print("step %d loss %.3f" % (step, current))
        if is_chief:
            test, theirs = spirals(np.random.RandomState(2**20), 1000)
            fed = {points: test, labels: theirs}
            right = session.run_step_fn(
                lambda step_context: step_context.session.run(accuracy, fed)
            )
            print("test accuracy: %.3f" % right)
    print("worker %d ends at step %d" % (args.task_index, step))


if __name__ == "__main__":
    main()
