"""`tfdeploy tensorboard`: TensorBoard on a run's files, through the SSH session; Ctrl-C ends it on both sides."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tfdeploy.cli.options import common


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "tensorboard",
        help="TensorBoard on a run's files, through SSH",
        description="Starts TensorBoard on the host of the run's deciding task and prints where it is seen here. Ctrl-C ends it.",
    )
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: the newest of this job)")
    parser.add_argument("--host", metavar="HOST", help="another host of the run")
    parser.add_argument("--port", type=_port, metavar="N", help="the port here (default: 6006, or any that is free)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.operations.tensorboard import tensorboard

    with setting.open_fleet(args) as fleet:
        plan, _ = setting.run_meant(args, fleet)
        if not args.quiet:
            print(f"starting TensorBoard for {plan.run} ...", file=sys.stderr)
        try:
            with tensorboard(fleet, plan, host=args.host, port=args.port) as board:
                print(json.dumps({"run": plan.run, "host": board.host, "url": board.url}) if args.json else board.url, flush=True)
                if not args.quiet:
                    print(f"on {board.host}; Ctrl-C ends it", file=sys.stderr)
                if args.open:
                    _open(board.url)
                board.wait()
        except KeyboardInterrupt:
            return 0
    return 0


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        print("no browser can be opened here", file=sys.stderr)


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
