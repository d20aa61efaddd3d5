# This program is only the client of a cluster. It has the address of one server. All servers belong
# to the job "local".
import tensorflow as tf

halves = []
numbers = tf.constant([float(each) for each in range(100)])
for task in range(2):
    with tf.device("/job:local/task:%d" % task):
        halves.append(tf.reduce_mean(tf.slice(numbers, [50 * task], [50])))
with tf.device("/job:local/task:0"):
    mean = tf.add_n(halves) / 2

with tf.Session("grpc://localhost:2222") as session:
    print("mean %.2f" % session.run(mean))
