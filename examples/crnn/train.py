"""Reads lines of digits with a small convolutional-recurrent network.

The loss is connectionist temporal classification, the optimizer is Adadelta. Between-graph, on
parameter servers and workers. Start one process per task, for example on one machine:

    python train.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=ps --task_index=0
    python train.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=0
    python train.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=1
"""

import os

import numpy as np
import tensorflow.compat.v1 as tf

import lines

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

flags = tf.app.flags
# The cluster
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", None, "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", None, "Index of the task within its job")
flags.DEFINE_integer(
    "issync", 0, "1: synchronous, gradients of all workers are averaged; 0: asynchronous"
)
# The training
flags.DEFINE_string("checkpoints", "checkpoints", "Folder to save to every 50 s, and to go on from")
flags.DEFINE_integer("steps", 600, "Global step to train up to")
flags.DEFINE_integer("batch_size", 32, "Lines per step of one worker")
flags.DEFINE_integer("units", 48, "Units of the recurrent layer, in each direction")
flags.DEFINE_float("learning_rate", 4.0, "Of Adadelta; asynchronous workers share it")
FLAGS = flags.FLAGS

CHANNELS = 24


def weights(name, shape):
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())


def biases(name, size, value):
    return tf.get_variable(name, [size], initializer=tf.constant_initializer(value))


def recurrent(name, columns):
    """A gated recurrent unit over a list of [batch, features]; the states after each."""
    features, units = columns[0].shape.as_list()[1], FLAGS.units
    with tf.variable_scope(name):
        gates = weights("gates", [features + units, 2 * units])
        gates_bias = biases("gates_bias", 2 * units, 1.0)
        new, new_bias = weights("new", [features + units, units]), biases("new_bias", units, 0.0)
    state = tf.zeros([tf.shape(columns[0])[0], units])
    states = []
    for column in columns:
        both = tf.sigmoid(tf.matmul(tf.concat([column, state], 1), gates) + gates_bias)
        reset, update = tf.split(both, 2, axis=1)
        candidate = tf.tanh(tf.matmul(tf.concat([column, reset * state], 1), new) + new_bias)
        state = update * state + (1 - update) * candidate
        states.append(state)
    return states


def network(images):
    """Logits [time, batch, classes]: convolution, pooling, then both directions along the line."""
    maps = tf.nn.conv2d(
        tf.expand_dims(images, 3),
        weights("filters", [5, 3, 1, CHANNELS]),
        strides=[1, 1, 1, 1],
        padding="SAME",
    )
    maps = tf.nn.relu(maps + biases("filters_bias", CHANNELS, 0.0))
    maps = tf.nn.max_pool(maps, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    time, features = lines.WIDTH // 2, lines.HEIGHT // 2 * CHANNELS
    columns = tf.unstack(tf.reshape(tf.transpose(maps, [2, 0, 1, 3]), [time, -1, features]))
    forwards = recurrent("forwards", columns)
    backwards = recurrent("backwards", columns[::-1])[::-1]
    states = tf.concat([tf.stack(forwards), tf.stack(backwards)], 2)
    return tf.tensordot(states, weights("classes", [2 * FLAGS.units, lines.DIGITS + 1]), 1)


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return

    is_chief = FLAGS.task_index == 0
    with tf.device(
        tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster
        )
    ):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        images = tf.placeholder(tf.float32, [None, lines.HEIGHT, lines.WIDTH])
        texts = tf.sparse_placeholder(tf.int32)
        logits = network(images)
        lengths = tf.fill([tf.shape(images)[0]], lines.WIDTH // 2)
        loss = tf.reduce_mean(tf.nn.ctc_loss(texts, logits, lengths))
        (read,), _ = tf.nn.ctc_greedy_decoder(logits, lengths)
        errors = tf.reduce_mean(tf.edit_distance(tf.cast(read, tf.int32), texts))

        # A synchronous step applies the mean of all workers' gradients. An asynchronous one applies
        # those of one worker, made from variables that the others have changed since: so it gets
        # its share of the rate.
        share = 1 if FLAGS.issync == 1 else len(worker_hosts)
        optimizer = tf.train.AdadeltaOptimizer(FLAGS.learning_rate / share)
        if FLAGS.issync == 1:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer,
                replicas_to_aggregate=len(worker_hosts),
                total_num_replicas=len(worker_hosts),
            )
        train_op = optimizer.minimize(loss, global_step=global_step)

        init_ops = {}
        if FLAGS.issync == 1:
            init_ops["local_init_op"] = (
                optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
            )
            init_ops["ready_for_local_init_op"] = optimizer.ready_for_local_init_op
            chief_queue_runner = optimizer.get_chief_queue_runner()
            init_token_op = optimizer.get_init_tokens_op()

    # Read now: once the session is there, other workers may have trained on.
    last = tf.train.latest_checkpoint(FLAGS.checkpoints)
    sv = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=FLAGS.checkpoints,
        global_step=global_step,
        summary_op=None,
        recovery_wait_secs=1,
        save_model_secs=50,
        **init_ops,
    )
    sess = sv.prepare_or_wait_for_session(server.target)
    if is_chief and FLAGS.issync == 1:
        sv.start_queue_runners(sess, [chief_queue_runner])
        sess.run(init_token_op)

    step = sess.run(global_step)
    if is_chief:
        print(
            "going on from step %s of the last checkpoint" % last.rpartition("-")[2]
            if last
            else "starting at step 0"
        )
    random = np.random.RandomState(1000 * FLAGS.task_index + step)
    told = step - step % 50
    while step < FLAGS.steps and not sv.should_stop():
        fed_images, fed_texts = lines.batch(random, FLAGS.batch_size)
        _, current, step = sess.run(
            [train_op, loss, global_step], feed_dict={images: fed_images, texts: fed_texts}
        )
        if step >= told + 50:
            told = step - step % 50
            print("step %d loss %.3f" % (step, current))

    if is_chief:
        sv.saver.save(sess, os.path.join(FLAGS.checkpoints, "model.ckpt"), global_step=step)
        test_images, test_texts = lines.batch(np.random.RandomState(2**20), 256)
        wrong = sess.run(errors, feed_dict={images: test_images, texts: test_texts})
        print("character accuracy: %.3f" % (1 - wrong))
    print("worker %d ends at step %d" % (FLAGS.task_index, step))
    sv.stop()


if __name__ == "__main__":
    tf.app.run()
