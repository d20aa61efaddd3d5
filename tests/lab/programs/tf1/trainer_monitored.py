import argparse
import sys

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

FLAGS = None


def main(_):
  ps_hosts = FLAGS.ps_hosts.split(",")
  worker_hosts = FLAGS.worker_hosts.split(",")

  # Create a cluster from the parameter server and worker hosts.
  cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})

  # Create and start a server for the local task.
  server = tf.train.Server(cluster,
                           job_name=FLAGS.job_name,
                           task_index=FLAGS.task_index)

  if FLAGS.job_name == "ps":
    server.join()
  elif FLAGS.job_name == "worker":

    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=False)

    # Assigns ops to the local worker by default.
    with tf.device(tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % FLAGS.task_index,
        cluster=cluster)):

      # Build model...
      images = tf.placeholder(tf.float32, [None, 784])
      labels = tf.placeholder(tf.int64, [None])
      hidden = tf.contrib.layers.fully_connected(images, 64)
      logits = tf.contrib.layers.fully_connected(hidden, 10, activation_fn=None)
      loss = tf.reduce_mean(
          tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
      global_step = tf.contrib.framework.get_or_create_global_step()

      train_op = tf.train.AdagradOptimizer(0.1).minimize(
          loss, global_step=global_step)

    # The StopAtStepHook handles stopping after running given steps.
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.last_step)]

    # The MonitoredTrainingSession takes care of session initialization,
    # restoring from a checkpoint, saving to a checkpoint, and closing when done
    # or an error occurs.
    with tf.train.MonitoredTrainingSession(master=server.target,
                                           is_chief=(FLAGS.task_index == 0),
                                           checkpoint_dir=FLAGS.checkpoint_dir,
                                           hooks=hooks) as mon_sess:
      while not mon_sess.should_stop():
        # Run a training step asynchronously.
        xs, ys = mnist.train.next_batch(64)
        _, value, step = mon_sess.run([train_op, loss, global_step],
                                      feed_dict={images: xs, labels: ys})
        if step % 50 == 0:
          print("step %d loss %.4f" % (step, value))


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.register("type", "bool", lambda v: v.lower() == "true")
  # Flags for defining the tf.train.ClusterSpec
  parser.add_argument("--ps_hosts", type=str, default="",
                      help="Comma-separated list of hostname:port pairs")
  parser.add_argument("--worker_hosts", type=str, default="",
                      help="Comma-separated list of hostname:port pairs")
  parser.add_argument("--job_name", type=str, default="", help="One of 'ps', 'worker'")
  # Flags for defining the tf.train.Server
  parser.add_argument("--task_index", type=int, default=0, help="Index of task within the job")
  parser.add_argument("--data_dir", type=str, default="MNIST_data")
  parser.add_argument("--checkpoint_dir", type=str, default="checkpoints")
  parser.add_argument("--last_step", type=int, default=300)
  FLAGS, unparsed = parser.parse_known_args()
  tf.app.run(main=main, argv=[sys.argv[0]] + unparsed)
