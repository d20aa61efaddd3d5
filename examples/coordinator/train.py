"""The training of chief.py with all parts of the cluster in one program, as in TensorFlow's guide.

Start it with TF_CONFIG in the environment. The ps and the workers serve, and the chief coordinates
them. An evaluator (if there is one) reads the checkpoints that the chief writes, so it must run on
the chief's host or share its folder.
"""

import os

import numpy as np
import tensorflow as tf

import chief


def evaluate(args):
    """Says how good each checkpoint is, until it has seen the last one."""
    model, step = chief.Model(), tf.Variable(0, dtype=tf.int64)
    test = chief.checkerboard(np.random.RandomState(2**20), 1000)
    for path in tf.train.checkpoints_iterator(args.checkpoints, min_interval_secs=1):
        tf.train.Checkpoint(model=model, step=step).restore(path).expect_partial()
        print(
            "evaluated step %d: accuracy %.3f" % (step.numpy(), model.accuracy(*test)), flush=True
        )
        if step >= args.steps:
            return


def main():
    args = chief.parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        os.environ["GRPC_FAIL_FAST"] = "use_caller"  # the coordinator hears of failures
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol=resolver.rpc_layer or "grpc",
            start=True,
        )
        server.join()
    elif resolver.task_type == "evaluator":
        evaluate(args)
    else:
        chief.main(args)


if __name__ == "__main__":
    main()
