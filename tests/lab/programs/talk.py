"""Writes lines to its standard output, then ends or waits for the file --until in its working directory.

    python talk.py --job_name=worker --task_index=0 [--lines=3] [--pause=0.1] [--odd=FILE]

Line N is `JOB:INDEX says N`; every third goes to standard error. --odd copies that file's bytes first.
The next line waits until this one was read: of two pipes that both hold something, a reader cannot tell the order.
"""
import argparse
import array
import fcntl
import os
import signal
import sys
import termios
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
        wait_until_read(stream.fileno())
    while args.job_name == "ps":
        signal.pause()


def wait_until_read(pipe):
    unread = array.array("i", [1])
    while unread[0]:
        try:
            fcntl.ioctl(pipe, termios.FIONREAD, unread)
        except OSError:
            return  # a file or a terminal keeps what is written
        if unread[0]:
            time.sleep(0.005)


if __name__ == "__main__":
    main()
