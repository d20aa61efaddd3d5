"""Asynchronous between-graph training with MonitoredTrainingSession.

    python monitored_async.py --ps_hosts=localhost:2222,localhost:2223 \
        --worker_hosts=localhost:2224,localhost:2225 --job_name=worker --task_index=0 --steps=400

The model is a small regression on made-up data. The program prints `starting at step N` when its
session is ready (N > 0: it resumed), `step N loss X` on the way and `done at step N` at the end. It
saves to --checkpoints.
"""
import argparse

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", type=str, required=True)
    parser.add_argument("--worker_hosts", type=str, required=True)
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoints", default="checkpoints")
    parser.add_argument(
        "--sharded", action="store_true", help="ask for a sharded saver, as some programs do"
    )
    return parser.parse_args()


def build(args, cluster):
    setter = tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % args.task_index, cluster=cluster
    )
    with tf.device(setter):
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.placeholder(tf.float32, [None, 1])
        hidden = tf.nn.relu(
            tf.matmul(x, tf.get_variable("w1", [4, 16])) + tf.get_variable("b1", [16])
        )
        predicted = tf.matmul(hidden, tf.get_variable("w2", [16, 1])) + tf.get_variable("b2", [1])
        loss = tf.reduce_mean(tf.square(predicted - y))
        global_step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=global_step)
    return x, y, loss, global_step, train


def main():
    args = parse()
    cluster = tf.train.ClusterSpec(
        {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
        return

    x, y, loss, global_step, train = build(args, cluster)
    scaffold = tf.train.Scaffold(saver=tf.train.Saver(sharded=True)) if args.sharded else None
    random = np.random.RandomState(args.task_index)
    step = None
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=args.task_index == 0,
        checkpoint_dir=args.checkpoints,
        scaffold=scaffold,
        save_checkpoint_steps=100,
        hooks=[tf.train.StopAtStepHook(last_step=args.steps)],
    ) as session:
        print(
            "starting at step %d"
            % session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        )
        while not session.should_stop():
            points = random.rand(32, 4)
            fed = {x: points, y: points.sum(axis=1, keepdims=True)}
            _, current, step = session.run([train, loss, global_step], fed)
            if step % 50 == 0:
                print("step %d loss %.4f" % (step, current))
    print("done at step %s" % step)


if __name__ == "__main__":
    main()
