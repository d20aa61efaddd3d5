"""Prints, as one line of JSON, what a task finds. Then ends.

    python vocal.py --job_name=worker --task_index=0 [--write=PATH ...] [--stay]

The line has the task's arguments, environment, folder, terminal, umask and session.

--write=PATH creates a file (PATH is relative to the working directory). --stay: the program does
not end, but waits for ever.
"""
import argparse
import json
import os
import signal
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--issync", type=int, default=0)
    parser.add_argument("--write", action="append", default=[])
    parser.add_argument("--stay", action="store_true")
    args = parser.parse_args()

    umask = os.umask(0)
    os.umask(umask)
    found = {
        "argv": sys.argv,
        "executable": sys.executable,
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "files": sorted(os.listdir(".")),
        "stdin": os.readlink("/proc/self/fd/0"),
        "tty": os.isatty(1),
        "umask": umask,
        "pid": os.getpid(),
        "session": os.getsid(0),
        "path": sys.path,
    }
    print(json.dumps(found), flush=True)
    for path in args.write:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a") as stream:
            stream.write("written by %s:%d\n" % (args.job_name, args.task_index))
    while args.stay or args.job_name == "ps":
        signal.pause()


if __name__ == "__main__":
    main()
