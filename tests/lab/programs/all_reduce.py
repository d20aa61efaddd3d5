"""A program without TensorFlow, whose workers all do the same. In each step, every rank sends a
number to rank 0. Rank 0 sends back the sum of all numbers.

    RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=2222 \
        python all_reduce.py --steps=3

Rank 0 binds MASTER_PORT with SO_REUSEADDR, but without SO_REUSEPORT, as PyTorch's store does. Step
N prints `step N sum S`. Rank 0 saves the step to checkpoints/step. After a restart, every rank
continues from the saved step.

--gate=N    from step N on, every rank waits after each step for a file `gate` in its working folder
--dies=R    in its first attempt, rank R ends with exit code 3 as soon as the file `gate` exists
"""
import argparse
import os
import socket
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
AT = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
SAVED = os.path.join("checkpoints", "step")


def collect():
    """Return rank 0's connections to all other ranks."""
    family = socket.AF_INET6 if ":" in AT[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", AT[1]))
        server.listen(WORLD)
        files = [server.accept()[0].makefile("rw") for _ in range(WORLD - 1)]
    for file in files:
        print("rank %s has come" % file.readline().strip(), flush=True)
    return files


def join():
    """Return the connection of this rank to rank 0. Try again until rank 0 listens."""
    while True:
        try:
            file = socket.create_connection(AT, timeout=60).makefile("rw")
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    tell(file, RANK)
    return [file]


def tell(file, number):
    file.write("%d\n" % number)
    file.flush()


def heard(file):
    line = file.readline()
    if not line:
        sys.exit("rank %d: another rank has gone" % RANK)
    return int(line)


def all_reduce(files, number):
    """Return the sum of the numbers of all ranks."""
    if RANK:
        tell(files[0], number)
        return heard(files[0])
    total = number + sum(heard(file) for file in files)
    for file in files:
        tell(file, total)
    return total


def saved_step():
    try:
        with open(SAVED) as stream:
            return int(stream.read())
    except IOError:
        return 0


def save(step):
    os.makedirs("checkpoints", exist_ok=True)
    with open(SAVED + ".new", "w") as stream:
        stream.write("%d\n" % step)
    os.replace(SAVED + ".new", SAVED)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gate", type=int, default=0)
    parser.add_argument("--dies", type=int, default=-1)
    args = parser.parse_args()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    print(" ".join("%s=%s" % (name, os.environ[name]) for name in names), flush=True)
    foreign = [name for name in ("TF_CONFIG", "TF_GRPC_REUSE_PORT") if name in os.environ]
    foreign += [name for name in sys.modules if "tfdeploy" in name]
    print("of TensorFlow: %s" % foreign, flush=True)
    files = join() if RANK else collect()
    step = saved_step()
    print("starting at step %d" % step, flush=True)
    while step < args.steps:
        step += 1
        print("step %d sum %d" % (step, all_reduce(files, step * (RANK + 1))), flush=True)
        if RANK == 0:
            save(step)
        while args.gate and step >= args.gate and not os.path.exists("gate"):
            time.sleep(0.05)
        if (
            args.gate
            and step >= args.gate
            and RANK == args.dies
            and os.environ.get("TFDEPLOY_TASK_ATTEMPT") == "1"
        ):
            sys.exit(3)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
