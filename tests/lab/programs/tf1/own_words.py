"""A program with unusual flags: --job is role and index, semicolons separate addresses, --update is
`sync` or `async`. Without --data_dir or without --log_dir, the program ends at once."""
import sys

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_string('job', '', 'which task this is, as in worker:0')
flags.DEFINE_string('servers', '', 'host:port of each server, with ; between')
flags.DEFINE_string('machines', '', 'host:port of each machine, with ; between')
flags.DEFINE_string('update', 'async', 'how gradients are applied')
flags.DEFINE_string('data_dir', None, 'where the images are')
flags.DEFINE_string('log_dir', None, 'where to write')
FLAGS = flags.FLAGS


def spec():
    cluster = {}
    cluster['ps'] = FLAGS.servers.split(';')
    cluster['worker'] = [each.strip() for each in FLAGS.machines.split(';')]
    return tf.train.ClusterSpec(cluster)


def main(_):
    if not FLAGS.data_dir or not FLAGS.log_dir:
        print('--data_dir and --log_dir are needed')
        sys.exit(1)
    role, number = FLAGS.job.split(':')
    index, cluster = int(number), spec()
    server = tf.train.Server(cluster, job_name=role, task_index=index)
    if role == 'ps':
        server.join()
    synchronous = FLAGS.update == 'sync'
    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
    with tf.device(
        tf.train.replica_device_setter(worker_device='/job:worker/task:%d' % index, cluster=cluster)
    ):
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        logits = tf.nn.xw_plus_b(x, tf.Variable(tf.zeros([784, 10])), tf.Variable(tf.zeros([10])))
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        hooks = [tf.train.StopAtStepHook(last_step=40)]
        if synchronous:
            count = cluster.num_tasks('worker')
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, count, total_num_replicas=count)
            hooks.append(optimizer.make_session_run_hook(index == 0))
        train = optimizer.minimize(loss, global_step=step)
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=index == 0, checkpoint_dir=FLAGS.log_dir, hooks=hooks
    ) as session:
        while not session.should_stop():
            xs, ys = mnist.train.next_batch(50)
            cost, n, _ = session.run([loss, step, train], feed_dict={x: xs, y: ys})
            print('%s %d: %s step %d loss %.4f' % (role, index, FLAGS.update, n, cost))


if __name__ == '__main__':
    tf.app.run()
