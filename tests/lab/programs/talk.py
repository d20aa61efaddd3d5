"""Writes lines to its standard output, then ends or waits for the file --until in its working directory.

    python talk.py --job_name=worker --task_index=0 [--lines=3] [--pause=0.1] [--odd=FILE]

Line N is `JOB:INDEX says N`; every third goes to standard error. --odd copies that file's bytes first.
"""
import argparse
import os
import signal
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--lines", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--odd", default="")
    args = parser.parse_args()
    if args.odd and args.job_name == "worker":
        with open(args.odd, "rb") as file:
            os.write(1, file.read())
    for number in range(1, args.lines + 1):
        stream = sys.stderr if number % 3 == 0 else sys.stdout
        print("%s:%d says %d" % (args.job_name, args.task_index, number), file=stream, flush=True)
        time.sleep(args.pause)
    while args.job_name == "ps":
        signal.pause()


if __name__ == "__main__":
    main()
