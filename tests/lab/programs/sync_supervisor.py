"""Synchronous training with SyncReplicasOptimizer, Supervisor and tf.app.flags, ended by sv.stop().

    python sync_supervisor.py --ps_hosts=localhost:2222 \
        --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=0 --issync=1 --steps=100

--stop=0    no task calls sv.stop(), as in many tutorials
--more=N    the workers other than the chief end N global steps later than the chief
--late=S    the workers other than the chief create their session S seconds after their server

A worker prints `step N loss X` if N is a multiple of 20. At its end, it prints `last step N at T`.
T is the time of its last step, in seconds since the epoch.
"""
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "localhost:2222", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "localhost:2223", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", None, "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", None, "Index of task within the job")
flags.DEFINE_integer("issync", 1, "1: synchronous, 0: asynchronous")
flags.DEFINE_integer("steps", 100, "Number of global steps")
flags.DEFINE_integer("stop", 1, "1: sv.stop() at the end")
flags.DEFINE_integer("more", 0, "Steps beyond the chief's, for the other workers")
flags.DEFINE_float("late", 0.0, "Seconds from server to session, for the other workers")
flags.DEFINE_string("checkpoints", "checkpoints", "Folder for checkpoints")
FLAGS = flags.FLAGS


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return

    is_chief = FLAGS.task_index == 0
    time.sleep(0.0 if is_chief else FLAGS.late)
    with tf.device(
        tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster
        )
    ):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.placeholder(tf.float32, [None, 1])
        weights = tf.Variable(tf.zeros([4, 1]))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        if FLAGS.issync == 1:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer,
                replicas_to_aggregate=len(worker_hosts),
                total_num_replicas=len(worker_hosts),
            )
        train_op = optimizer.minimize(loss, global_step=global_step)
        local_init_op = ready_op = None
        if FLAGS.issync == 1:
            local_init_op = optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
            ready_op = optimizer.ready_for_local_init_op
            chief_queue_runner = optimizer.get_chief_queue_runner()
            init_token_op = optimizer.get_init_tokens_op()

    arguments = (
        {"local_init_op": local_init_op, "ready_for_local_init_op": ready_op}
        if FLAGS.issync == 1
        else {}
    )
    sv = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=FLAGS.checkpoints,
        global_step=global_step,
        recovery_wait_secs=1,
        save_model_secs=60,
        **arguments
    )
    sess = sv.prepare_or_wait_for_session(server.target)
    if is_chief and FLAGS.issync == 1:
        sv.start_queue_runners(sess, [chief_queue_runner])
        sess.run(init_token_op)

    random = np.random.RandomState(FLAGS.task_index)
    step, last = 0, time.time()
    while step < FLAGS.steps + (0 if is_chief else FLAGS.more) and not sv.should_stop():
        points = random.rand(16, 4)
        fed = {x: points, y: points.sum(axis=1, keepdims=True)}
        _, current, step = sess.run([train_op, loss, global_step], fed)
        if step % 20 == 0:
            print("step %d loss %.4f" % (step, current))
        last = time.time()
    print("last step %d at %.3f" % (step, last))
    if FLAGS.stop == 1:
        sv.stop()


if __name__ == "__main__":
    tf.app.run()
