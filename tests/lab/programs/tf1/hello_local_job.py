# Two tasks of one job that is not called ps or worker; task 0 places an operation on each.
import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--task_index", type=int, default=0)
args = parser.parse_args()

alone = tf.train.Server.create_local_server()
with tf.Session(alone.target) as sess:
    print(sess.run(tf.constant("Hello, distributed TensorFlow!")).decode())

cluster = tf.train.ClusterSpec({"local": ["localhost:2222", "localhost:2223"]})
server = tf.train.Server(cluster, job_name="local", task_index=args.task_index)
if args.task_index != 0:
    server.join()

with tf.device("/job:local/task:1"):
    a = tf.constant([3.0, 4.0])
with tf.device("/job:local/task:0"):
    b = tf.reduce_sum(a * a)
with tf.Session("grpc://localhost:2222") as sess:
    print("the sum of squares is %.1f" % sess.run(b))
