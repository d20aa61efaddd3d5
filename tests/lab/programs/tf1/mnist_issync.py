# coding:utf-8
# Synchronous or asynchronous updates of one softmax layer, chosen by --issync.
import time

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_float("learning_rate", 0.2, "Initial learning rate.")
flags.DEFINE_integer("max_steps", 200, "Steps of all workers together")
flags.DEFINE_string("data_path", "MNIST_data", "")
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("issync", 0, "1: synchronous, 0: asynchronous")
FLAGS = flags.FLAGS


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    issync = FLAGS.issync
    if FLAGS.job_name == "ps":
        server.join()
    elif FLAGS.job_name == "worker":
        mnist = input_data.read_data_sets(FLAGS.data_path, one_hot=True)
        with tf.device(tf.train.replica_device_setter(
                worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
            global_step = tf.Variable(0, name="global_step", trainable=False)
            x = tf.placeholder("float", [None, 784])
            y_ = tf.placeholder("float", [None, 10])
            weight = tf.get_variable(
                "weight",
                [784, 10],
                tf.float32,
                initializer=tf.random_normal_initializer(stddev=0.01),
            )
            biase = tf.get_variable("biase", [10], tf.float32, initializer=tf.zeros_initializer())
            logits = tf.matmul(x, weight) + biase
            loss_value = tf.reduce_mean(
                tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=logits)
            )
            optimizer = tf.train.GradientDescentOptimizer(FLAGS.learning_rate)
            if issync == 1:
                # collect the gradients of all workers before an update
                rep_op = tf.train.SyncReplicasOptimizer(optimizer,
                                                        replicas_to_aggregate=len(worker_hosts),
                                                        total_num_replicas=len(worker_hosts),
                                                        use_locking=True)
                train_op = rep_op.minimize(loss_value, global_step=global_step)
                init_token_op = rep_op.get_init_tokens_op()
                chief_queue_runner = rep_op.get_chief_queue_runner()
            else:
                train_op = optimizer.minimize(loss_value, global_step=global_step)

            init_op = tf.global_variables_initializer()
            saver = tf.train.Saver()
            tf.summary.scalar("cost", loss_value)
            summary_op = tf.summary.merge_all()

        sv = tf.train.Supervisor(is_chief=(FLAGS.task_index == 0),
                                 logdir="./checkpoint/",
                                 init_op=init_op,
                                 summary_op=None,
                                 saver=saver,
                                 global_step=global_step,
                                 save_model_secs=60)

        with sv.prepare_or_wait_for_session(server.target) as sess:
            if FLAGS.task_index == 0 and issync == 1:
                sv.start_queue_runners(sess, [chief_queue_runner])
                sess.run(init_token_op)
            step = 0
            began = time.time()
            while step < FLAGS.max_steps:
                train_x, train_y = mnist.train.next_batch(64)
                _, loss_v, step = sess.run(
                    [train_op, loss_value, global_step], feed_dict={x: train_x, y_: train_y}
                )
                if step % 20 == 0:
                    print("step: %d, loss: %f, %.1f s" % (step, loss_v, time.time() - began))
        print("worker %d finished" % FLAGS.task_index)
        sv.stop()


if __name__ == "__main__":
    tf.app.run()
