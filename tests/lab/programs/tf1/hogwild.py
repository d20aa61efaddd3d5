"""Hogwild!: every worker reads and writes the shared parameters without a lock.

It uses a plain session.
"""
import argparse
import time

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

parser = argparse.ArgumentParser()
parser.add_argument('--job_name', type=str, required=True)
parser.add_argument('--task_index', type=int, required=True)
args = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {'ps': ['localhost:2222'], 'worker': ['localhost:2223', 'localhost:2224']}
)
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
n_workers = cluster.num_tasks('worker')

if args.job_name == 'ps':
    server.join()

mnist = input_data.read_data_sets('MNIST_data/', one_hot=True)

with tf.device('/job:ps/task:0'):
    W = tf.Variable(tf.truncated_normal([784, 10], stddev=0.01), name='W')
    b = tf.Variable(tf.zeros([10]), name='b')
    updates = tf.Variable(0, name='updates', trainable=False)

with tf.device('/job:worker/task:%d' % args.task_index):
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.float32, [None, 10])
    logits = tf.nn.xw_plus_b(x, W, b)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
    train = tf.train.GradientDescentOptimizer(0.1, use_locking=False).minimize(
        loss, global_step=updates
    )
    accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(logits, 1), tf.argmax(y, 1))))

sess = tf.Session(server.target)
if args.task_index == 0:
    sess.run(tf.global_variables_initializer())
else:
    while len(sess.run(tf.report_uninitialized_variables())) > 0:
        print('worker %d waits for the variables' % args.task_index)
        time.sleep(1.0)

for i in range(150):
    xs, ys = mnist.train.next_batch(50)
    _, cost, n = sess.run([train, loss, updates], feed_dict={x: xs, y: ys})
    if i % 30 == 0:
        print(
            'worker %d of %d: local step %d, update %d, loss %.4f'
            % (args.task_index, n_workers, i, n, cost)
        )
print(
    'worker %d: accuracy %.3f'
    % (args.task_index, sess.run(accuracy, {x: mnist.test.images, y: mnist.test.labels}))
)
