# A worker sums the gradients of several batches, then applies them. Addresses and paths are fixed.
import os
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string('job_name', '', 'ps/worker')
tf.app.flags.DEFINE_integer('task_index', 0, '')
tf.app.flags.DEFINE_integer('accumulate', 4, '')

cluster = tf.train.ClusterSpec({
    "ps": "localhost:2222".split(","),
    "worker": "localhost:2223,localhost:2224".split(","),
})


def train(server):
    mnist = input_data.read_data_sets("MNIST_data", one_hot=True)
    with tf.device(tf.train.replica_device_setter(
            cluster=cluster, worker_device="/job:worker/task:%d" % FLAGS.task_index)):
        step = tf.contrib.framework.create_global_step()
        images = tf.placeholder(tf.float32, (None, 784))
        labels = tf.placeholder(tf.float32, (None, 10))
        grid = tf.reshape(images, [-1, 28, 28, 1])
        net = tf.contrib.layers.conv2d(grid, 4, [5, 5], stride=2, scope="conv1",
                                       weights_regularizer=tf.contrib.layers.l2_regularizer(1e-4))
        net = tf.contrib.layers.max_pool2d(net, [2, 2], scope="pool1")
        net = tf.contrib.layers.flatten(net)
        logits = tf.contrib.layers.fully_connected(net, 10, activation_fn=None, scope="logits")
        tf.losses.softmax_cross_entropy(labels, logits)
        loss = tf.losses.get_total_loss()

    opt = tf.train.AdamOptimizer(0.003)
    grads_and_vars = opt.compute_gradients(loss, tf.trainable_variables())
    with tf.device("/job:worker/task:%d" % FLAGS.task_index):
        sums = [tf.Variable(tf.zeros_like(v.initialized_value()), trainable=False,
                            collections=[tf.GraphKeys.LOCAL_VARIABLES]) for _, v in grads_and_vars]
        zero = [s.assign(tf.zeros_like(s)) for s in sums]
        add = [s.assign_add(g) for s, (g, _) in zip(sums, grads_and_vars)]
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        apply_op = opt.apply_gradients(
            [(s / FLAGS.accumulate, v) for s, (_, v) in zip(sums, grads_and_vars)],
            global_step=step)

    scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=2))
    with tf.train.MonitoredTrainingSession(server.target, is_chief=FLAGS.task_index == 0,
                                           scaffold=scaffold,
                                           checkpoint_dir="/tmp/accumulated-%d" % os.getpid(),
                                           hooks=[tf.train.StopAtStepHook(num_steps=40)]) as sess:
        while not sess.should_stop():
            sess.run(zero)
            for _ in range(FLAGS.accumulate):
                x, y = mnist.train.next_batch(32)
                _, value = sess.run([add, loss], {images: x, labels: y})
            if sess.should_stop():
                break
            _, n = sess.run([apply_op, step])
            print("worker", FLAGS.task_index, "step", n, "loss", value)


def main(argv=None):
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    else:
        train(server)


if __name__ == "__main__":
    tf.app.run()
