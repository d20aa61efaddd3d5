"""A cluster without TensorFlow: each task listens on its own port; workers count steps, a ps waits for ever.

    python quick.py --ps_hosts=localhost:2222 --worker_hosts=localhost:2223 --job_name=worker --task_index=0 --steps=20

Starts in 0.1 s. Step N of a worker takes --pause seconds and prints `step N loss X`. --save writes the step to
checkpoints/step and goes on from there; --failat=N ends with exit code 3 at that step; --unready=ps:0: that task opens no
port and trains nothing, so it is up only after `ready.after`, and until then the launch can only be rolled back.
--gate=N: after step N, and each later one, it waits for a file called gate in its folder, so that a test decides when it
goes on to its end.
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
    """The socket of this task, as a server of TensorFlow would open it: on all addresses of IPv4 and IPv6, joining a held port."""
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
        while True:
            signal.pause()
    hosts = (args.ps_hosts if args.job_name == "ps" else args.worker_hosts).split(",")
    server = listen(hosts[args.task_index]) if hosts[args.task_index] else None
    print("%s:%d pid %d listens on %s" % (args.job_name, args.task_index, os.getpid(), hosts[args.task_index]), flush=True)
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
