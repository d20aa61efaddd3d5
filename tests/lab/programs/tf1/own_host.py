# Three machines start this program with the same command. A machine's address decides its task.
import socket
import sys

import tensorflow as tf

ps_hosts = ["10.100.68.245"]
worker_hosts = ["10.100.68.193", "10.100.68.183"]
tf.app.flags.DEFINE_string(
    "ip", socket.gethostbyname(socket.gethostname()), "address of this machine"
)
FLAGS = tf.app.flags.FLAGS

if FLAGS.ip in ps_hosts:
    job, index = "ps", ps_hosts.index(FLAGS.ip)
elif FLAGS.ip in worker_hosts:
    job, index = "worker", worker_hosts.index(FLAGS.ip)
else:
    sys.exit("%s is in no list" % FLAGS.ip)

cluster = tf.train.ClusterSpec(
    {"ps": [h + ":2222" for h in ps_hosts], "worker": [h + ":2222" for h in worker_hosts]}
)
server = tf.train.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()

with tf.device(
    tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)
):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.square(w - 3.0)
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)

hooks = [tf.train.StopAtStepHook(last_step=200)]
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=(index == 0), hooks=hooks
) as session:
    while not session.should_stop():
        _, value, at = session.run([train, loss, step])
print("worker %d: step %d loss %.3f" % (index, at, value))
