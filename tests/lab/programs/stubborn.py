"""A task that is hard to stop. It ignores TERM, INT and HUP, forks, double-forks, changes its
session and never ends.

    python stubborn.py --ps_hosts=... --worker_hosts=... --job_name=worker --task_index=0

Each of its lasting processes prints a line such as `pid N child`. Then the task prints a `step`
line every second. It listens on the port of its task. With --environ, it makes one more process,
which calls exec with an empty environment. So nobody finds this process by its environment.
"""
import argparse
import os
import signal
import socket
import sys
import time


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--environ", action="store_true")
    return parser.parse_args()


def tell(what):
    os.write(1, ("pid %d %s\n" % (os.getpid(), what)).encode())


def stay(what):
    tell(what)
    while True:
        time.sleep(3600)


def fork(body, *args):
    if os.fork() == 0:
        try:
            body(*args)
        finally:
            os._exit(0)


def second_fork(what, session):
    """Start another process, and end. The new process then gets another parent."""
    if session:
        os.setsid()
    fork(stay, what)


def without_environment():
    tell("no environment")
    code = (
        "import signal, time\n"
        "for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
        "while True: time.sleep(3600)"
    )
    os.execve(sys.executable, [sys.executable, "-c", code], {})


def main():
    args = parse()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hosts = (args.ps_hosts if args.job_name == "ps" else args.worker_hosts).split(",")
    if hosts[args.task_index]:
        server = socket.socket()
        if os.environ.get("TF_GRPC_REUSE_PORT"):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", int(hosts[args.task_index].rsplit(":", 1)[1])))
        server.listen(16)
    tell("itself")
    fork(stay, "child")
    fork(second_fork, "orphan", False)
    fork(second_fork, "orphan in a session of its own", True)
    if args.environ:
        fork(without_environment)
    step = 0
    while True:
        step += 1
        os.write(1, b"step %d\n" % step)
        time.sleep(1)


if __name__ == "__main__":
    main()
