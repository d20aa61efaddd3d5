"""A cluster without TensorFlow whose tasks exchange bytes, but print no steps. In each step, a
worker sends bytes to ps:0 and gets an answer.

    python standing.py --ps_hosts=... --worker_hosts=... --job_name=worker --task_index=0 [FLAGS]

--issync=1             the ps answers after all workers have sent their bytes of this step
--leaves=worker:1      worker:1 ends with exit code 0 after its tenth step
--computes=worker:1    instead of its steps, worker:1 computes for ever
--sleeps=worker:1      instead of its steps, worker:1 sleeps for ever
--closed=worker:1      worker:1 also sleeps for ever, and does not listen on its port
--waits=worker:0       instead of its steps, worker:0 prints TensorFlow's message that it waits for
                       worker:1, again and again
"""
import argparse
import os
import socket
import threading
import time

CHUNK = 20000
WAITING = (
    "2026-11-21 07:00:00.0: I distributed_runtime/master.cc:1] CreateSession still waiting for "
    "response from worker: /job:%s/replica:0/task:%s"
)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--issync", type=int, default=0)
    for name in ("leaves", "computes", "sleeps", "waits", "closed"):
        parser.add_argument("--" + name, default="")
    return parser.parse_args()


def listen(address):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # gRPC sets SO_REUSEADDR too. With it, connections in TIME_WAIT do not make the bind fail.
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", int(address.rsplit(":", 1)[1])))
    server.listen(64)
    return server


def receive(one):
    left = CHUNK
    while left:
        some = one.recv(left)
        if not some:
            raise EOFError
        left -= len(some)


def serve(server, barrier):
    def answer(one):
        try:
            while True:
                receive(one)
                if barrier is not None:
                    barrier.wait()
                one.sendall(b"x" * CHUNK)
        except (OSError, EOFError):
            one.close()

    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


def connect(address):
    host, port = address.rsplit(":", 1)
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except ConnectionError:
            time.sleep(0.1)


def first_step(address):
    """Make the first step, and return its connection. Until the server listens, connections are
    refused or closed. Then this function tries again, as gRPC does.
    """
    while True:
        one = connect(address)
        try:
            one.sendall(b"x" * CHUNK)
            receive(one)
            return one
        except (ConnectionError, EOFError):
            one.close()
            time.sleep(0.1)


def work(args, me):
    step = 1
    one = first_step(args.ps_hosts.split(",")[0])
    while True:
        if me == args.leaves and step == 10:
            return
        time.sleep(0.3)
        one.sendall(b"x" * CHUNK)
        receive(one)
        step += 1


def main():
    args = parse()
    me = "%s:%d" % (args.job_name, args.task_index)
    hosts = (args.ps_hosts if args.job_name == "ps" else args.worker_hosts).split(",")
    server = listen(hosts[args.task_index]) if me != args.closed else None
    print("%s pid %d" % (me, os.getpid()), flush=True)
    if args.job_name == "ps":
        serve(server, threading.Barrier(len(args.worker_hosts.split(","))) if args.issync else None)
    elif me == args.computes:
        while True:
            pass
    while me == args.waits:
        time.sleep(1.0)
        print(WAITING % ("worker", 1), flush=True)
    while me in (args.sleeps, args.closed):
        time.sleep(100.0)
    work(args, me)


if __name__ == "__main__":
    main()
