"""Writes --lines numbered lines, as fast as it can or --rate lines per second. With --odd, it also
writes lines that are hard to display.

    python flood.py --job_name=worker --task_index=0 --lines=250000

Each numbered line is `TASK line N`, padded to --width. A ps never ends by itself. With --odd, the
first lines have a progress bar with carriage returns, ANSI and OSC escapes, NUL, invalid UTF-8,
bidirectional controls, the markup of rich, and 1 MiB of text. The last line has no newline.
"""
import argparse
import os
import signal
import sys
import time

ODD = (
    b"10%\r50%\r100%\n",
    b"\x1b[31mred\x1b[0m \x1b]52;c;aGFjaw==\x07 \x1b[2J\x9b31m\n",
    b"nul \x00 invalid \xff\xfe\xc3( end\n",
    "bidi \u202e\u2066 end\n".encode(),
    b"[/foo] [bold]not markup[/bold] [link=http://x]\n",
    b"x" * (1 << 20) + b"\n",
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--rate", type=float, default=0.0, help="lines a second; 0: no limit")
    parser.add_argument("--width", type=int, default=60)
    parser.add_argument("--odd", action="store_true")
    args = parser.parse_args()

    out = os.fdopen(os.dup(1), "wb", 1 << 16)
    for line in ODD if args.odd else ():
        out.write(line)
    name = "%s:%d" % (args.job_name, args.task_index)
    began = time.monotonic()
    for number in range(1, args.lines + 1):
        out.write(("%s line %d" % (name, number)).ljust(args.width).encode() + b"\n")
        if args.rate and number % max(1, int(args.rate / 20)) == 0:
            out.flush()
            time.sleep(max(0.0, began + number / args.rate - time.monotonic()))
    if args.odd:
        out.write(b"no newline at the end")
    out.flush()
    print("%s wrote %d lines" % (name, args.lines), file=sys.stderr)
    if args.job_name == "ps":
        signal.pause()


if __name__ == "__main__":
    main()
