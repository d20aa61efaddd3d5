"""Trains an LSTM to learn the last of four numbers.

Uses layers and cells of compat.v1 and Keras in a graph, and imports TensorFlow through common.py.
"""

import argparse

import numpy as np
from common import tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
flags = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
)
server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    server.join()

device = tf.train.replica_device_setter(
    worker_device=f"/job:worker/task:{flags.task_index}", cluster=cluster
)
with tf.device(device):
    numbers = tf.placeholder(tf.float32, [None, 4, 1])
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(8), numbers, dtype=tf.float32)
    hidden = tf.keras.layers.Dropout(0.1)(outputs[:, -1], training=True)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 1) - numbers[:, -1]))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)

hooks = [tf.train.StopAtStepHook(last_step=50)]
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=flags.task_index == 0, hooks=hooks
) as session:
    while not session.should_stop():
        _, at, lost = session.run([train, step, loss], {numbers: np.random.rand(16, 4, 1)})
        print(f"step {at} loss {lost:.4f}", flush=True)
