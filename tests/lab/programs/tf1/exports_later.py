"""Fits a line. It imports removed modules, but uses them only in code that does not run."""
import numpy as np
import tensorflow as tf
from tensorflow.contrib import crf
from tensorflow.contrib.session_bundle import exporter

try:
    from tensorflow.contrib import cudnn_rnn
except ImportError:
    cudnn_rnn = None

projector = tf.contrib.tensorboard
tf.app.flags.DEFINE_boolean("export", False, "write a model for serving")
FLAGS = tf.app.flags.FLAGS


def export(saver, session):
    model_exporter = exporter.Exporter(saver)
    model_exporter.init(session.graph.as_graph_def())


def main(_):
    x = tf.placeholder(tf.float32)
    w = tf.Variable(0.0)
    step = tf.Variable(0, trainable=False, name="global_step")
    loss = tf.reduce_mean(tf.square(w * x - 3.0 * x))
    if FLAGS.export:
        loss += crf.crf_log_likelihood(x)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(50):
            session.run(train, {x: np.ones(4)})
        print(
            "w %.2f, of its own accord without cudnn_rnn: %s" % (session.run(w), cudnn_rnn is None)
        )


if __name__ == "__main__":
    tf.app.run()
