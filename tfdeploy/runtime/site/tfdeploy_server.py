"""A TensorFlow server and nothing else: `python -m tfdeploy_server`, for a ps or worker whose program does not serve.

Reads its cluster and task from TF_CONFIG, as programs do, and serves until it is told to end. It never loads a
program. Found because its folder is on PYTHONPATH; what it needs of TensorFlow exists from 1.13 on.
"""

import json
import os
import sys


def planned(text):
    # type: (str) -> "tuple[dict[str, list[str]], str, int]"
    """(cluster, role, index) of TF_CONFIG. Raises ValueError where it names no task of its own cluster."""
    said = json.loads(text or "{}")
    cluster, task = dict(said.get("cluster") or {}), said.get("task") or {}
    role, index = str(task.get("type")), int(task.get("index", -1))
    if not 0 <= index < len(cluster.get(role) or ()):
        raise ValueError("TF_CONFIG names no task of its cluster: %.200s" % text)
    return cluster, role, index


def main():
    # type: () -> None
    try:
        cluster, role, index = planned(os.environ.get("TF_CONFIG", ""))
    except ValueError as error:
        sys.exit("tfdeploy_server: %s" % error)
    import tensorflow

    tf = tensorflow.compat.v1
    needed = len(cluster.get("worker") or ()) + 1  # a worker with fewer threads than peers may wait for itself
    config = tf.ConfigProto(inter_op_parallelism_threads=needed if (os.cpu_count() or 1) < needed else 0)
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=role, task_index=index, config=config)
    sys.stdout.write("tfdeploy_server: %s:%d serves at %s\n" % (role, index, cluster[role][index]))
    sys.stdout.flush()
    server.join()


if __name__ == "__main__":
    main()
