"""Writes lines to its standard output and its standard error. Then a worker ends, and a ps waits
for ever.

    python talk.py --job_name=worker --task_index=0 [--lines=3] [--pause=0.1] [--odd=FILE]

Line N is `JOB:INDEX says N`. Every third line goes to standard error. With --odd, a worker first
writes the bytes of FILE. The program writes a line only after the line before has been read. If
both pipes held a line, their reader could not tell which line was written first.
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
            return  # not a pipe but a file or a terminal, which keeps what is written
        if unread[0]:
            time.sleep(0.005)


if __name__ == "__main__":
    main()
