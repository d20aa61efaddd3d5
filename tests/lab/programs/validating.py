"""Two workers that print nothing for long after their first step, with real TensorFlow. worker:0
validates for --seconds of CPU time. worker:1 waits for a token that it never gets, like a
synchronous worker whose peers are dead.

    python validating.py --ps_hosts=... --worker_hosts=... \
        --job_name=worker --task_index=0 --seconds=40
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
    parser.add_argument("--seconds", type=float, default=40.0)
    return parser.parse_args()


def main():
    args = parse()
    cluster = tf.train.ClusterSpec(
        {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
        return
    with tf.device("/job:ps/task:0"):
        step = tf.get_variable("step%d" % args.task_index, [], tf.int64, tf.zeros_initializer())
        tokens = tf.FIFOQueue(1, [tf.int64], shapes=[[]], shared_name="tokens")
    filters = ["/job:ps", "/job:worker/task:%d" % args.task_index]
    with tf.Session(server.target, config=tf.ConfigProto(device_filters=filters)) as session:
        session.run(tf.global_variables_initializer())
        print("step %d" % session.run(tf.assign_add(step, 1)), flush=True)
        if args.task_index == 1:
            session.run(tokens.dequeue())
        matrix, until = np.random.rand(200, 200), time.process_time() + args.seconds
        while time.process_time() < until:
            matrix = np.tanh(matrix @ matrix)
        print("validated %.3f" % matrix.mean(), flush=True)


if __name__ == "__main__":
    main()
