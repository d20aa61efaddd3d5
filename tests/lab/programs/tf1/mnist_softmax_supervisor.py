"""Distributed MNIST softmax, asynchronous, with a Supervisor.

python mnist_softmax_supervisor.py --ps_hosts=... --worker_hosts=... --job_name=ps --task_index=0
"""
from __future__ import print_function

import tempfile
import time

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_string("data_dir", "MNIST_data", "Directory with the mnist data")
flags.DEFINE_string("log_dir", None, "Directory for checkpoints")
flags.DEFINE_integer("task_index", None,
                     "Worker task index, should be >= 0. task_index=0 is the master worker")
flags.DEFINE_integer("train_steps", 300, "Number of (global) training steps to perform")
flags.DEFINE_integer("batch_size", 100, "Training batch size")
flags.DEFINE_float("learning_rate", 0.5, "Learning rate")
flags.DEFINE_string("ps_hosts", "localhost:2222", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224",
                    "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", None, "job name: worker or ps")
FLAGS = flags.FLAGS

IMAGE_PIXELS = 28


def main(unused_argv):
    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
    if FLAGS.job_name is None or FLAGS.job_name == "":
        raise ValueError("Must specify an explicit `job_name`")
    print("job name = %s" % FLAGS.job_name)
    print("task index = %d" % FLAGS.task_index)

    ps_spec = FLAGS.ps_hosts.split(",")
    worker_spec = FLAGS.worker_hosts.split(",")
    num_workers = len(worker_spec)
    cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": worker_spec})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    is_chief = (FLAGS.task_index == 0)
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)

        x = tf.placeholder(tf.float32, [None, IMAGE_PIXELS * IMAGE_PIXELS])
        y_ = tf.placeholder(tf.float32, [None, 10])
        W = tf.Variable(tf.zeros([IMAGE_PIXELS * IMAGE_PIXELS, 10]), name="weights")
        b = tf.Variable(tf.zeros([10]), name="biases")
        y = tf.nn.softmax(tf.matmul(x, W) + b)
        cross_entropy = -tf.reduce_mean(tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)),
                                                      reduction_indices=[1]))
        correct = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
        accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

        opt = tf.train.GradientDescentOptimizer(FLAGS.learning_rate)
        train_step = opt.minimize(cross_entropy, global_step=global_step)
        init_op = tf.initialize_all_variables()

    sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.log_dir or tempfile.mkdtemp(),
                             init_op=init_op, recovery_wait_secs=1, global_step=global_step)
    sess_config = tf.ConfigProto(
        allow_soft_placement=True, log_device_placement=False,
        device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    if is_chief:
        print("Worker %d: Initializing session..." % FLAGS.task_index)
    else:
        print("Worker %d: Waiting for session to be initialized..." % FLAGS.task_index)
    sess = sv.prepare_or_wait_for_session(server.target, config=sess_config)
    print("Worker %d: Session initialization complete." % FLAGS.task_index)

    time_begin = time.time()
    local_step = 0
    while True:
        batch_xs, batch_ys = mnist.train.next_batch(FLAGS.batch_size)
        _, step = sess.run([train_step, global_step], feed_dict={x: batch_xs, y_: batch_ys})
        local_step += 1
        if local_step % 20 == 0:
            print("Worker %d: training step %d done (global step: %d)" %
                  (FLAGS.task_index, local_step, step))
        if step >= FLAGS.train_steps:
            break
    print("Training elapsed time: %f s" % (time.time() - time_begin))
    print("Test accuracy = %g" % sess.run(accuracy, feed_dict={x: mnist.test.images,
                                                               y_: mnist.test.labels}))


if __name__ == "__main__":
    tf.app.run()
