"""Fails after --after seconds: exits with code --code, or kills itself with signal number --signal.

Before that, it prints a line to standard error.

    python crash.py --job_name=worker --task_index=0 --code=7 --after=0.5

With --only=worker:1, all other tasks wait for ever instead. With --listen, the task first listens
on its port. With --raises, it ends by an exception, and not with --code. With --gate, it waits
until its working folder has a file `gate`, and then for --after seconds.
"""
import argparse
import os
import signal
import socket
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--code", type=int, default=7)
    parser.add_argument("--signal", type=int, default=0)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--listen", action="store_true")
    parser.add_argument("--raises", action="store_true")
    parser.add_argument("--gate", action="store_true")
    args = parser.parse_args()

    hosts = (args.ps_hosts if args.job_name == "ps" else args.worker_hosts).split(",")
    if args.listen:
        server = socket.socket()
        if os.environ.get("TF_GRPC_REUSE_PORT"):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", int(hosts[args.task_index].rsplit(":", 1)[1])))
        server.listen(16)
    me = "%s:%d" % (args.job_name, args.task_index)
    print("%s started" % me, flush=True)
    if args.only and args.only != me:
        while True:
            signal.pause()
    while args.gate and not os.path.exists("gate"):
        time.sleep(0.05)
    time.sleep(args.after)
    print("%s: something is wrong, giving up" % me, file=sys.stderr, flush=True)
    if args.signal:
        if args.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(args.signal, signal.SIG_DFL)
        os.kill(os.getpid(), args.signal)
    if args.raises:
        {}["shard"]
    sys.exit(args.code)


if __name__ == "__main__":
    main()
