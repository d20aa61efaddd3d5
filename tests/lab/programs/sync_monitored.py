"""Synchronous training with SyncReplicasOptimizer and MonitoredTrainingSession.

    python sync_monitored.py --ps_hosts=localhost:2222 \
        --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=0 --issync=1 --steps=100

Prints `step N loss X` on the way and `last step N at SECONDS` (seconds since the epoch) right after
its last one.
"""
import argparse
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--issync", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--checkpoints", default="checkpoints")
    return parser.parse_args()


def main():
    args = parse()
    workers = args.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": args.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
        return

    is_chief = args.task_index == 0
    setter = tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % args.task_index, cluster=cluster
    )
    with tf.device(setter):
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.placeholder(tf.float32, [None, 1])
        weights = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        hooks = [tf.train.StopAtStepHook(last_step=args.steps)]
        if args.issync:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=len(workers), total_num_replicas=len(workers)
            )
        train = optimizer.minimize(loss, global_step=global_step)
        if args.issync:
            hooks.append(optimizer.make_session_run_hook(is_chief))

    random = np.random.RandomState(args.task_index)
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=is_chief, checkpoint_dir=args.checkpoints, hooks=hooks
    ) as session:
        while not session.should_stop():
            points = random.rand(16, 4)
            fed = {x: points, y: points.sum(axis=1, keepdims=True)}
            _, current, step = session.run([train, loss, global_step], fed)
            if step % 20 == 0:
                print("step %d loss %.4f" % (step, current))
            last = time.time()
        print("last step %d at %.3f" % (step, last))


if __name__ == "__main__":
    main()
