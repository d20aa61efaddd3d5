"""Supply the functions inference, loss, training and evaluation of the MNIST tutorial, whose
network has two hidden layers."""

import math

import tensorflow.compat.v1 as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images, hidden1_units, hidden2_units):
    """Return the logits, of shape [batch, NUM_CLASSES], for `images`, of shape [batch,
    IMAGE_PIXELS]."""
    hidden1 = tf.nn.relu(_layer("hidden1", images, IMAGE_PIXELS, hidden1_units))
    hidden2 = tf.nn.relu(_layer("hidden2", hidden1, hidden1_units, hidden2_units))
    return _layer("softmax_linear", hidden2, hidden2_units, NUM_CLASSES)


def _layer(name, inputs, width, units):
    with tf.name_scope(name):
        start = tf.truncated_normal([width, units], stddev=1.0 / math.sqrt(float(width)))
        weights = tf.Variable(start, name="weights")
        biases = tf.Variable(tf.zeros([units]), name="biases")
        return tf.matmul(inputs, weights) + biases


def loss(logits, labels):
    """Return the mean cross entropy. `labels`: whole numbers, of shape [batch]."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.to_int64(labels), logits=logits)


def training(loss, learning_rate):
    """Return the operation for one step of gradient descent, which also increments the new variable
    `global_step`. Add a summary of the loss to the graph."""
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def evaluation(logits, labels):
    """Return how many predictions in the batch are right."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))
