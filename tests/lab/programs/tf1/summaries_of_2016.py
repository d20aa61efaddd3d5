"""A program for TensorFlow 0.11: tf.mul, tf.pack, concat(1, ...), a cross entropy with positional
arguments, tf.scalar_summary. It uses a module of contrib, but in a function that nobody calls."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.session_bundle import exporter

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "")
flags.DEFINE_string("worker_hosts", "", "")
flags.DEFINE_string("job_name", "", "")
flags.DEFINE_integer("task_index", 0, "")
flags.DEFINE_integer("steps", 200, "")
FLAGS = flags.FLAGS


def export(sess, saver):
    model_exporter = exporter.Exporter(saver)
    model_exporter.export("/tmp/export", tf.constant(1), sess)


def main(_):
    cluster = tf.train.ClusterSpec(
        {"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    with tf.device(
        tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster
        )
    ):
        half = tf.placeholder(tf.float32, [None, 4])
        y = tf.placeholder(tf.float32, [None, 3])
        x = tf.concat(1, [half, tf.neg(half)])
        w = tf.Variable(tf.zeros([8, 3]))
        b = tf.Variable(tf.zeros([3]))
        logits = tf.add(tf.matmul(x, w), b)
        loss = tf.reduce_mean(
            tf.nn.softmax_cross_entropy_with_logits(logits, y), reduction_indices=0
        )
        penalty = tf.mul(1e-4, tf.reduce_sum(tf.pack([tf.nn.l2_loss(v) for v in (w, b)])))
        global_step = tf.Variable(0, name="global_step", trainable=False)
        train = tf.train.GradientDescentOptimizer(0.5).minimize(
            loss + penalty, global_step=global_step
        )
        right = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(logits, 1), tf.argmax(y, 1))))
        tf.scalar_summary("cross entropy", loss)
        summary_op = tf.merge_all_summaries()
        init = tf.initialize_all_variables()

    sv = tf.train.Supervisor(
        is_chief=FLAGS.task_index == 0,
        logdir="train",
        init_op=init,
        global_step=global_step,
        summary_op=None,
        saver=None,
    )
    random = np.random.RandomState(FLAGS.task_index)
    with sv.prepare_or_wait_for_session(server.target) as sess:
        writer = tf.train.SummaryWriter("train/%d" % FLAGS.task_index, sess.graph)
        step = 0
        while step < FLAGS.steps:
            inputs = random.normal(size=[32, 4])
            labels = np.eye(3)[np.argmax(inputs[:, :3], 1)]
            _, value, share, step = sess.run(
                [train, loss, right, global_step], {half: inputs, y: labels}
            )
            writer.add_summary(sess.run(summary_op, {half: inputs, y: labels}), step)
        print("done at step %d: loss %.3f, right %.2f" % (step, value, share))
    sv.stop()


if __name__ == "__main__":
    tf.app.run()
