"""Worker 0 writes --rate lines per second that are costly for regular expressions. The other
workers write ordinary step lines.

    python costly_lines.py --job_name=worker --task_index=0 --rate=1000

A costly line has 4 KiB. The lines have many different patterns, which are written in turn. With
--floods=N, the first N workers write costly lines. No task ends by itself.
"""
import argparse
import itertools
import os
import signal
import time

SIZE = 4096
HEADS = (
    "", "1/1 - a: ", "1/1 1us/step", "step ", "loss: ", "global_step/sec: ", "local_step ",
    "Epoch 1/1", "] ",
)  # fmt: skip
REPEATED = (
    "1", "a", " ", "\t", "/", ".", "1.", "1,", " - ", " - a: ", "1/1 ", "step ", "step 1 ",
    "loss ", "global step ", "\x1b[", "\x9b0", "\x1b]", "us/step ", "I0000 00:00:0.0 1 a.cc",
    "/job:worker/task:1", "still waiting for response from worker: ",
    "Traceback (most recent call last):",
)  # fmt: skip
ENDS = ("", "x", "b")


def shapes():
    for head, repeated, end in itertools.product(HEADS, REPEATED, ENDS):
        size = SIZE - len(head) - len(end)
        yield head + (repeated * size)[:size] + end


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--floods", type=int, default=1)
    args = parser.parse_args()
    if args.job_name == "ps":
        signal.pause()
    if args.task_index >= args.floods:
        for step in itertools.count(1):
            print("step %d loss 0.5" % step, flush=True)
            time.sleep(0.1)
    lines = [line.encode("utf-8") + b"\n" for line in shapes()]
    began = time.monotonic()
    with os.fdopen(os.dup(1), "wb", 1 << 20) as out:
        for number, line in enumerate(itertools.cycle(lines), 1):
            out.write(line)
            if number % max(1, int(args.rate / 20)) == 0:
                out.flush()
                time.sleep(max(0.0, began + number / args.rate - time.monotonic()))


if __name__ == "__main__":
    main()
