"""Hello from two processes.

    python two_tasks.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223 \
        --job_name=ps --task_index=0
    python two_tasks.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223 \
        --job_name=worker --task_index=0

The greeting is a variable on the ps. The worker adds to it and reads it.
"""

import argparse

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", required=True, help="Comma-separated list of hostname:port pairs")
parser.add_argument(
    "--worker_hosts", required=True, help="Comma-separated list of hostname:port pairs"
)
parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
parser.add_argument("--task_index", type=int, required=True)
args = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
)
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
if args.job_name == "ps":
    server.join()

with tf.device("/job:ps/task:0"):
    greeting = tf.Variable("Hello from the ps", name="greeting")
with tf.device("/job:worker/task:%d" % args.task_index):
    answered = greeting.assign(greeting + " and from worker %d!" % args.task_index)

with tf.Session(server.target) as session:
    session.run(greeting.initializer)
    session.run(answered)
    print(session.run(greeting).decode())
