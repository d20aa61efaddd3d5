"""Asynchronous training in which all workers but the first are late: they wait --delay seconds
before they train.

    python late_worker.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=1 --delay=15 --session=monitored

--session monitored | supervisor | managed | plain    how the program creates its session
--wait_before session    a late worker starts its server, waits, and then creates its session
--wait_before server     a late worker waits, and then starts its server

A worker prints `ready at step N` and `done at step N`.
"""
import argparse
import contextlib
import time

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--delay", type=float, default=15.0)
    parser.add_argument("--wait_before", choices=["session", "server"], default="session")
    parser.add_argument(
        "--session", choices=["monitored", "supervisor", "managed", "plain"], default="monitored"
    )
    parser.add_argument("--checkpoints", default="checkpoints")
    return parser.parse_args()


@contextlib.contextmanager
def open_session(args, target, global_step):
    """Yield a session that is ready for training. --session says how to create it."""
    is_chief = args.task_index == 0
    if args.session == "monitored":
        with tf.train.MonitoredTrainingSession(
            target, is_chief=is_chief, checkpoint_dir=args.checkpoints
        ) as session:
            yield session
        return
    if args.session == "plain":
        with tf.Session(target) as session:
            if is_chief:
                session.run(tf.global_variables_initializer())
            while session.run(tf.report_uninitialized_variables()).size:
                time.sleep(0.5)
            yield session
        return
    sv = tf.train.Supervisor(
        is_chief=is_chief, logdir=args.checkpoints, global_step=global_step, recovery_wait_secs=1
    )
    if args.session == "managed":
        with sv.managed_session(target) as session:
            yield session
        return
    yield sv.prepare_or_wait_for_session(target)
    sv.stop()


def main():
    args = parse()
    late = args.job_name == "worker" and args.task_index > 0
    if late and args.wait_before == "server":
        time.sleep(args.delay)
    cluster = tf.train.ClusterSpec(
        {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
        return

    if late and args.wait_before == "session":
        time.sleep(args.delay)
    setter = tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % args.task_index, cluster=cluster
    )
    with tf.device(setter):
        global_step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        loss = tf.square(weight - 3.0)
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=global_step)

    with open_session(args, server.target, global_step) as session:
        step = session.run(global_step)
        print("ready at step %d" % step)
        while step < args.steps:
            _, current, step = session.run([train, loss, global_step])
            if step % 50 == 0:
                print("step %d loss %.4f" % (step, current))
    print("done at step %d" % step)


if __name__ == "__main__":
    main()
