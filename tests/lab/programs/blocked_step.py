"""In one step, the worker's server rejects the worker's part, and a ps waits for a tensor of it.

Run with seed.so of tests/unit/runtime/test_blocked_step.py in LD_PRELOAD: after `fix_seed(2)`, the
next two threads draw the same request ids. TensorFlow starts one thread for each step.
"""

import argparse
import ctypes
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
parser.add_argument("--job_name", required=True)
parser.add_argument("--task_index", type=int, required=True)
args = parser.parse_args()

cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
if args.job_name == "ps":
    server.join()

with tf.device("/job:ps/task:0"):
    total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=True)
with tf.device("/job:worker/task:0"):
    own = tf.get_variable("own", [], initializer=tf.ones_initializer(), use_resource=True)
    local_step = own.assign_add(1.0, read_value=False)
    images = tf.placeholder(tf.float32, [100, 784])
    one = own * 0.0 + tf.reduce_mean(images)
with tf.device("/job:ps/task:0"):
    step = total.assign_add(one, read_value=False)

batch = {images: np.ones([100, 784])}  # so large that TensorFlow's report of the step is cut off
with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    session.run([local_step, step], batch)
    session.run(local_step)
    session.run(step, batch)
    print("before:", session.run(total), flush=True)
    ctypes.CDLL(None).fix_seed(2)
    # This step and the next step get the same request id. This step runs only on this server, so
    # this server knows the id before the next step, and the ps does not.
    session.run(local_step)
    session.run(step, batch)
    print("after:", session.run(total), flush=True)
os._exit(0)
