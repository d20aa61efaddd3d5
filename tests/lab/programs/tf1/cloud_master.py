# Written for a launcher that calls the chief "master": TF_CONFIG says who a task is, and the master
# alone initialises.
import json
import os

import tensorflow as tf

env = json.loads(os.environ.get("TF_CONFIG", "{}"))
kind, number = env["task"]["type"], env["task"]["index"]
server = tf.train.Server(tf.train.ClusterSpec(env["cluster"]), job_name=kind, task_index=number)
if kind == "ps":
    server.join()

device = tf.train.replica_device_setter(
    worker_device="/job:%s/task:%d" % (kind, number), cluster=env["cluster"]
)
with tf.device(device):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.square(w - 3.0)
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)

hooks = [tf.train.StopAtStepHook(last_step=200)]
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=(kind == "master"), hooks=hooks
) as session:
    while not session.should_stop():
        _, value, at = session.run([train, loss, step])
print(
    "%s:%d of %d workers: step %d loss %.3f"
    % (kind, number, len(env["cluster"]["worker"]), at, value)
)
