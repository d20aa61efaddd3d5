"""Run only a TensorFlow server, for a ps or worker whose program starts none: `python -m
tfdeploy_server [JOB]`.

The server reads its cluster and task from TF_CONFIG, as programs do, and serves until a signal ends
it. JOB is the client's name for the job of the workers, as in `/job:local/task:0`. Python finds
this module because its folder is on PYTHONPATH. The module works with TensorFlow 1.13 and later.
"""

import json
import os
import sys


def parse_tf_config(text, worker_job=""):
    # type: (str, str) -> "tuple[dict[str, list[str]], str, int]"
    """Return (cluster, job, index) of a TF_CONFIG. `worker_job`: the new name of the job
    `worker`; "" keeps the name. Raises ValueError if the task of the TF_CONFIG is not in its
    cluster."""
    config = json.loads(text or "{}")
    cluster, task = dict(config.get("cluster") or {}), config.get("task") or {}
    role, index = str(task.get("type")), int(task.get("index", -1))
    if not 0 <= index < len(cluster.get(role) or ()):
        raise ValueError("TF_CONFIG names no task of its cluster: %.200s" % text)
    if worker_job:
        cluster[worker_job] = cluster.pop("worker")
    return cluster, worker_job if worker_job and role == "worker" else role, index


def main():
    # type: () -> None
    try:
        cluster, job, index = parse_tf_config(os.environ.get("TF_CONFIG", ""), *sys.argv[1:2])
    except ValueError as error:
        sys.exit("tfdeploy_server: %s" % error)
    import tensorflow

    tf = tensorflow.compat.v1
    # If a worker has fewer threads than peers, all its threads may wait for peers, which is a
    # deadlock.
    needed = max(map(len, cluster.values())) + 1
    config = tf.ConfigProto(
        inter_op_parallelism_threads=needed if (os.cpu_count() or 1) < needed else 0
    )
    server = tf.train.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=index, config=config
    )
    sys.stdout.write("tfdeploy_server: %s:%d serves at %s\n" % (job, index, cluster[job][index]))
    sys.stdout.flush()
    server.join()


if __name__ == "__main__":
    main()
