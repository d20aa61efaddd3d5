"""A TensorFlow server and nothing else: `python -m tfdeploy_server`, for a ps or worker whose
program does not serve.

Reads its cluster and task from TF_CONFIG, as programs do, and serves until it is told to end. A
word behind it is what the client calls the workers' job (`/job:local/task:0`). It never loads a
program. Found because its folder is on PYTHONPATH; what it needs of TensorFlow exists from 1.13 on.
"""

import json
import os
import sys


def planned(text, workers=""):
    # type: (str, str) -> "tuple[dict[str, list[str]], str, int]"
    """(cluster, job, index) of TF_CONFIG, the job worker by the name `workers`. Raises ValueError
    where it names no task of its own cluster."""
    said = json.loads(text or "{}")
    cluster, task = dict(said.get("cluster") or {}), said.get("task") or {}
    role, index = str(task.get("type")), int(task.get("index", -1))
    if not 0 <= index < len(cluster.get(role) or ()):
        raise ValueError("TF_CONFIG names no task of its cluster: %.200s" % text)
    if workers:
        cluster[workers] = cluster.pop("worker")
    return cluster, workers if workers and role == "worker" else role, index


def main():
    # type: () -> None
    try:
        cluster, job, index = planned(os.environ.get("TF_CONFIG", ""), *sys.argv[1:2])
    except ValueError as error:
        sys.exit("tfdeploy_server: %s" % error)
    import tensorflow

    tf = tensorflow.compat.v1
    # a worker with fewer threads than peers may wait for itself
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
