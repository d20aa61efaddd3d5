# The client starts a server itself, as the job "host" of the cluster. The variable is on this
# server. Workers compute.
import json

import tensorflow as tf

cluster = json.loads(
    '{"worker": ["10.10.100.87:2222", "10.10.102.74:2222"], "host": ["10.10.100.87:2223"]}'
)
server = tf.train.Server(cluster, job_name="host", task_index=0)
with tf.device("/job:host/task:0"):
    v = tf.get_variable("v", [2, 2], initializer=tf.ones_initializer())
with tf.device("/job:worker/task:0"):
    a = v + 1.0
with tf.device("/job:worker/task:1"):
    total = tf.reduce_sum(tf.matmul(a, a))
with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    print("total %.1f" % session.run(total))
