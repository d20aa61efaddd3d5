"""A cluster without TensorFlow. Each task listens on its own port. A worker counts steps, a ps
waits for ever.

    python quick.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223 \
        --job_name=worker --task_index=0 --steps=20

The program starts in 0.1 s. Step N of a worker takes --pause seconds and prints `step N loss X`.

--save            worker:0 saves its step in checkpoints/step; workers start at the saved step
--failat=N        a worker ends with exit code 3 at step N
--unready=ps:0    ps:0 opens no port before its folder has a file `gate`. Until then, or until
                  `ready.after`, the launch is not complete, and a failure rolls it back.
--gate=N          after step N and each later step, a worker waits until its folder has a file
                  `gate`. So a test decides when the worker ends.
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
    parser.add_argument("--issync", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--failat", type=int, default=0)
    parser.add_argument("--unready", default="")
    parser.add_argument("--gate", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    return parser.parse_args()


def listen(address):
    """Return a socket that listens as a TensorFlow server does: on all addresses of IPv4 and IPv6,
    with SO_REUSEPORT if tfdeploy asks for it, because the agent then holds the port too.
    """
    dual = socket.has_dualstack_ipv6()
    server = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    if dual:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if os.environ.get("TF_GRPC_REUSE_PORT"):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", int(address.rsplit(":", 1)[1])))
    server.listen(16)
    return server


def saved_step():
    try:
        with open(os.path.join("checkpoints", "step")) as stream:
            return int(stream.read())
    except IOError:
        return 0


def save(step):
    os.makedirs("checkpoints", exist_ok=True)
    with open(os.path.join("checkpoints", "step.new"), "w") as stream:
        stream.write("%d\n" % step)
    os.replace(os.path.join("checkpoints", "step.new"), os.path.join("checkpoints", "step"))


def main():
    args = parse()
    if args.unready == "%s:%d" % (args.job_name, args.task_index):
        while not os.path.exists("gate"):
            time.sleep(0.05)
    hosts = (args.ps_hosts if args.job_name == "ps" else args.worker_hosts).split(",")
    server = listen(hosts[args.task_index]) if hosts[args.task_index] else None
    print(
        "%s:%d pid %d listens on %s"
        % (args.job_name, args.task_index, os.getpid(), hosts[args.task_index]),
        flush=True,
    )
    if args.job_name == "ps":
        while True:
            signal.pause()
    start = saved_step() if args.save else 0
    print("starting at step %d" % start, flush=True)
    for step in range(start + 1, args.steps + 1):
        time.sleep(args.pause)
        if step == args.failat:
            sys.exit(3)
        print("step %d loss %.4f" % (step, 1.0 / step), flush=True)
        if args.save and args.task_index == 0:
            save(step)
        while step >= args.gate > 0 and not os.path.exists("gate"):
            time.sleep(0.05)
    print("done at step %d" % args.steps, flush=True)
    if server is not None:
        server.close()


if __name__ == "__main__":
    main()
