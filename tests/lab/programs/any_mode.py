"""A task of any mode, without TensorFlow. TF_CONFIG says which task it is. A server waits for ever,
any other task counts steps.

    python any_mode.py --steps=5 --steps_of=worker:1=20 --fail=worker:1 --forever=evaluator:0 --save

The program starts in 0.1 s. It listens on its own port if TF_CONFIG contains an address for it.
With --save, the chief (or worker:0) writes checkpoints/backup/checkpoint at its end, and each task
that counts steps prints which checkpoint it found at its start. With --gate=worker:1, this task
goes on until its folder has a file `gate`.
"""
import argparse
import json
import os
import signal
import socket
import sys
import time


def serve_by_itself():
    """Nothing calls this function. From its text, tfdeploy concludes that the program starts its
    own server.
    """
    import tensorflow as tf

    tf.distribute.Server(None).join()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--steps_of", action="append", default=[])
    parser.add_argument("--fail", action="append", default=[])
    parser.add_argument("--forever", action="append", default=[])
    parser.add_argument("--gate", action="append", default=[])
    parser.add_argument("--quiet_after", type=int, default=10 ** 9)
    parser.add_argument("--save", action="store_true")
    return parser.parse_args()


def listen(address):
    """Listen as a TensorFlow server does: on all interfaces, with SO_REUSEPORT if tfdeploy asks for
    it, because the agent then holds the port too.
    """
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.environ.get("TF_GRPC_REUSE_PORT"):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", int(address.rsplit(":", 1)[1])))
    server.listen(16)
    return server


def main():
    args = parse()
    said = json.loads(os.environ.get("TF_CONFIG", "{}"))
    cluster, task = said.get("cluster", {}), said.get("task", {"type": "worker", "index": 0})
    name, peers = "%s:%d" % (task["type"], task["index"]), cluster.get(task["type"], [])
    server = listen(peers[task["index"]]) if task["index"] < len(peers) else None
    print(
        "%s listens: %s; TF_CONFIG: %s" % (name, server is not None, "TF_CONFIG" in os.environ),
        flush=True,
    )
    if task["type"] == "ps" or (task["type"] == "worker" and "ps" in cluster):
        while True:
            signal.pause()
    record = os.path.join("checkpoints", "backup", "checkpoint")
    if args.save:
        print(
            "found %s" % (open(record).read().strip() if os.path.exists(record) else "nothing"),
            flush=True,
        )
    steps = dict(one.split("=") for one in args.steps_of).get(name, args.steps)
    step = 0
    while (
        step < int(steps)
        or name in args.forever
        or (name in args.gate and not os.path.exists("gate"))
    ):
        step += 1
        time.sleep(0.1)
        if step <= args.quiet_after:
            print("step %d" % step, flush=True)
    if args.save and name in ("chief:0", "worker:0"):
        os.makedirs(os.path.dirname(record), exist_ok=True)
        with open(record, "w") as stream:
            stream.write('model_checkpoint_path: "ckpt-%d"\n' % step)
    sys.exit(3 if name in args.fail else 0)


if __name__ == "__main__":
    main()
