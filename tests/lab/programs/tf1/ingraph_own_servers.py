# Every task runs this program. Task 0 builds the graph for all of them, and the others only serve.
import argparse
import os

import numpy as np
import tensorflow as tf

HOSTS = ['192.168.1.101:2222', '192.168.1.102:2222', '192.168.1.103:2222']

parser = argparse.ArgumentParser()
parser.add_argument('--task_index', type=int, required=True)
parser.add_argument('--model_dir', default='model')
args = parser.parse_args()

server = tf.train.Server(
    tf.train.ClusterSpec({'worker': HOSTS}), job_name='worker', task_index=args.task_index
)
if args.task_index != 0:
    print('serving task %d' % args.task_index)
    server.join()

with tf.device('/job:worker/task:0/cpu:0'):
    global_step = tf.Variable(0, name='global_step', trainable=False)
    W = tf.get_variable('W', [20, 1], initializer=tf.zeros_initializer())
    x = tf.placeholder(tf.float32, [None, 20])
    xs = tf.split(x, len(HOSTS), 0)

losses = []
for i in range(len(HOSTS)):
    with tf.device('/job:worker/task:%d/cpu:0' % i):
        wanted = tf.reduce_sum(xs[i], 1, keep_dims=True)
        losses.append(tf.reduce_mean(tf.square(tf.matmul(xs[i], W) - wanted)))
loss = tf.add_n(losses) / len(HOSTS)
train_op = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=global_step)

saver = tf.train.Saver(max_to_keep=3)
with tf.Session(server.target) as sess:
    sess.run(tf.global_variables_initializer())
    while sess.run(global_step) < 100:
        _, l, step = sess.run([train_op, loss, global_step], {x: np.random.randn(90, 20)})
    saver.save(sess, os.path.join(args.model_dir, 'model.ckpt'), global_step=step)
print('finished at step %d with loss %.3f' % (step, l))
