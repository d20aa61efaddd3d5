"""Synchronous training whose input comes from queue runners.

It uses slice_input_producer, shuffle_batch and a Coordinator.
"""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import argparse

import tensorflow as tf
from tensorflow.contrib.learn.python.learn.datasets.mnist import read_data_sets

parser = argparse.ArgumentParser()
parser.add_argument('--ps_hosts', type=str, default='localhost:2222')
parser.add_argument('--worker_hosts', type=str, default='localhost:2223')
parser.add_argument('--job_name', type=str, default='worker')
parser.add_argument('--task_index', type=int, default=0)
parser.add_argument('--train_dir', type=str, default='train')
parser.add_argument('--steps', type=int, default=150)
FLAGS = parser.parse_args()


def inputs():
    mnist = read_data_sets('MNIST_data', one_hot=False, validation_size=0)
    image, label = tf.train.slice_input_producer(
        [tf.constant(mnist.train.images[:1000]), tf.constant(mnist.train.labels[:1000], tf.int32)]
    )
    return tf.train.shuffle_batch(
        [image, label], batch_size=32, capacity=500, min_after_dequeue=100, num_threads=1
    )


def inference(images):
    with tf.variable_scope('hidden'):
        w = tf.get_variable(
            'w', [784, 32], initializer=tf.truncated_normal_initializer(stddev=0.05)
        )
        b = tf.get_variable('b', [32], initializer=tf.constant_initializer(0.1))
        hidden = tf.nn.relu(tf.matmul(images, w) + b)
    with tf.variable_scope('logits'):
        w = tf.get_variable('w', [32, 10], initializer=tf.truncated_normal_initializer(stddev=0.05))
        b = tf.get_variable('b', [10], initializer=tf.zeros_initializer())
        return tf.matmul(hidden, w) + b


def run():
    cluster = tf.train.ClusterSpec(
        {'ps': FLAGS.ps_hosts.split(','), 'worker': FLAGS.worker_hosts.split(',')}
    )
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == 'ps':
        server.join()
        return
    num_workers = len(FLAGS.worker_hosts.split(','))
    with tf.device('/job:worker/task:%d/cpu:0' % FLAGS.task_index):
        images, labels = inputs()
    with tf.device(tf.train.replica_device_setter(
            worker_device='/job:worker/task:%d' % FLAGS.task_index, cluster=cluster)):
        global_step = tf.train.get_or_create_global_step()
        logits = inference(images)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        learning_rate = tf.train.exponential_decay(0.1, global_step, 100, 0.9, staircase=True)
        opt = tf.train.SyncReplicasOptimizer(
            tf.train.MomentumOptimizer(learning_rate, 0.9),
            replicas_to_aggregate=num_workers,
            total_num_replicas=num_workers,
        )
        train_op = opt.minimize(loss, global_step=global_step)
        hook = opt.make_session_run_hook(FLAGS.task_index == 0)

    hooks = [hook, tf.train.StopAtStepHook(last_step=FLAGS.steps), tf.train.NanTensorHook(loss)]
    if FLAGS.task_index == 0:
        hooks.append(
            tf.train.LoggingTensorHook({'step': global_step, 'loss': loss}, every_n_iter=25)
        )
    tf.logging.set_verbosity(tf.logging.INFO)
    with tf.train.MonitoredTrainingSession(master=server.target, is_chief=(FLAGS.task_index == 0),
                                           checkpoint_dir=FLAGS.train_dir, hooks=hooks) as sess:
        while not sess.should_stop():
            _, value, step = sess.run([train_op, loss, global_step])
    print('worker %d: last step %d, loss %.4f' % (FLAGS.task_index, step, value))


if __name__ == '__main__':
    run()
