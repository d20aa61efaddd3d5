# Written for a launcher that sets environment variables, which tell each task its job and its
# index. A ps calls server.join(). Worker 0 is the chief.
import json
import os

import tensorflow as tf

spec = json.loads(os.environ["CLUSTER_SPEC"])
job = os.environ["JOB_NAME"]
index = int(os.environ["TASK_ID"])
cluster = tf.train.ClusterSpec({"ps": spec["ps"], "worker": spec["worker"]})
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
print("worker %d of %d: step %d loss %.3f" % (index, len(spec["worker"]), at, value))
