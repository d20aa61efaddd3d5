"""DOWNPOUR: each worker trains a copy of its own, and pushes its gradients every few steps.

The gradients are accumulated until then. Each ps has a queue. A worker that is done puts a token
into each queue, so the ps learn when the training is over.
"""
import tensorflow as tf
from tensorflow.contrib.framework import get_or_create_global_step
from tensorflow.examples.tutorials.mnist import input_data

tf.app.flags.DEFINE_string('job_name', '', 'ps or worker')
tf.app.flags.DEFINE_integer('task_index', 0, 'index')
tf.app.flags.DEFINE_integer('push_every', 5, 'local steps between two pushes')
FLAGS = tf.app.flags.FLAGS

CLUSTER = {
    'ps': ['192.168.1.10:2222'],
    'worker': ['192.168.1.11:2222', '192.168.1.12:2222'],
}


def shared_queue(index, n_workers):
    with tf.device('/job:ps/task:%d' % index):
        return tf.FIFOQueue(n_workers, tf.int32, shared_name='done_queue%d' % index)


def copies(variables, worker):
    with tf.device(worker):
        return [tf.get_variable(v.op.name + '_copy', initializer=tf.zeros(v.shape), trainable=False,
                                collections=[tf.GraphKeys.LOCAL_VARIABLES]) for v in variables]


def main(_):
    spec = tf.train.ClusterSpec(CLUSTER)
    n_workers, n_ps = len(spec.as_dict()['worker']), len(spec.as_dict()['ps'])
    server = tf.train.Server(spec, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == 'ps':
        queue = shared_queue(FLAGS.task_index, n_workers)
        with tf.Session(server.target) as sess:
            for i in range(n_workers):
                sess.run(queue.dequeue())
                tf.logging.info(
                    'ps %d: %d of %d workers are done', FLAGS.task_index, i + 1, n_workers
                )
        return

    tf.logging.set_verbosity(tf.logging.INFO)
    mnist = input_data.read_data_sets('MNIST_data', one_hot=True)
    worker = '/job:worker/task:%d' % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=spec)):
        global_step = get_or_create_global_step()
        weights = tf.get_variable(
            'weights', [784, 10], initializer=tf.contrib.layers.xavier_initializer()
        )
        bias = tf.get_variable('bias', [10], initializer=tf.zeros_initializer())
    mine = copies([weights, bias], worker)
    sums = [tf.get_variable('sum_%d' % i, initializer=tf.zeros(v.shape), trainable=False,
                            collections=[tf.GraphKeys.LOCAL_VARIABLES]) for i, v in enumerate(mine)]
    with tf.device(worker):
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        loss = tf.losses.softmax_cross_entropy(y, tf.matmul(x, mine[0]) + mine[1])
        grads = tf.gradients(loss, mine)
        local = tf.group(
            *[tf.assign_sub(v, 0.1 * g) for v, g in zip(mine, grads)]
            + [tf.assign_add(s, g) for s, g in zip(sums, grads)]
        )
    push = tf.train.GradientDescentOptimizer(0.1).apply_gradients(
        zip(sums, [weights, bias]), global_step=global_step
    )
    with tf.control_dependencies([push]):
        clear = tf.group(*[tf.assign(s, tf.zeros_like(s)) for s in sums])
    pull = tf.group(*[tf.assign(m, v) for m, v in zip(mine, [weights, bias])])
    done = [shared_queue(i, n_workers).enqueue(1) for i in range(n_ps)]

    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=FLAGS.task_index == 0
    ) as sess:
        sess.run(pull)
        for i in range(100):
            xs, ys = mnist.train.next_batch(64)
            _, value = sess.run([local, loss], {x: xs, y: ys})
            if (i + 1) % FLAGS.push_every == 0:
                sess.run(clear)
                sess.run(pull)
            if i % 25 == 0:
                tf.logging.info('worker %d step %d loss %.4f', FLAGS.task_index, i, value)
        tf.logging.info('worker %d: final loss %.4f', FLAGS.task_index, value)
        for op in done:
            sess.run(op)


if __name__ == '__main__':
    tf.app.run()
