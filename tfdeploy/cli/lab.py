"""`tfdeploy lab`: a throw-away cluster on this machine. Options to values, one call of the lab, one answer."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, set_handler
from tfdeploy.cli.options import env_default, env_true

if TYPE_CHECKING:
    from tfdeploy.lab import Lab
    from tfdeploy.model.printed import LabAnswer, LabDownAnswer

ACTIONS = {
    "cut": "take a host off the network (isolated)",
    "heal": "put it back on the network",
    "kill": "power a host off",
    "boot": "power it on again: same disk, same address",
}


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    """The flags of all `lab` verbs; a flag that a verb does not take has its default."""

    unbounded = "a lab is one whole; cut, heal, kill and boot name their host"
    takes_words = True

    lab_verb: str
    name: str
    count: int = 0
    kind: str = "loopback"
    rate: str | None = None
    python: str = sys.executable
    shared_workdir: bool = False
    gpus: str | None = None
    sites: int = 1
    between: str | None = None
    host: str = ""


def add(subparsers: Any) -> None:
    what = "Throw-away hosts on this machine, each a real sshd."
    parser = subparsers.add_parser("lab", help="a throw-away cluster on this machine", description=what)
    verbs = parser.add_subparsers(dest="lab_verb", metavar="VERB", required=True)
    up = _verb(verbs, "up", "bring hosts up, or start again those that died; prints where the inventory is")
    up.add_argument("count", type=int, metavar="N", help="how many hosts: n1 is ps, the rest are workers")
    up.add_argument("--kind", choices=("loopback", "isolated"), default="loopback", help="isolated needs root and namespaces")
    up.add_argument("--rate", help="bandwidth of each link, as tc writes it: 100mbit (isolated)")
    up.add_argument(
        "--sites", type=int, default=1, metavar="N", help="at how many sites the hosts are; the operator is at the first"
    )
    up.add_argument("--between", metavar="RATE", help="bandwidth between sites (default: no limit)")
    up.add_argument("--python", default=sys.executable, metavar="PATH", help="the hosts' interpreter (default: this one)")
    up.add_argument("--shared-workdir", action="store_true", help="one ~/tfdeploy for all hosts, like an NFS home")
    up.add_argument("--gpus", help="the hosts' `gpus:` (default: auto)")
    _verb(verbs, "down", "remove the lab: processes, namespaces, mounts, files")
    _verb(verbs, "status", "the hosts and whether they are up")
    what = "run the command after -- as the lab's operator, who reaches the hosts (isolated: and nothing else)"
    _verb(verbs, "run", what).usage = "tfdeploy lab run [--name NAME] -- CMD"
    for action, what in ACTIONS.items():
        _verb(verbs, action, what).add_argument("host", metavar="HOST")


def _verb(verbs: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what)
    parser.add_argument("--name", default=env_default("lab-name") or "lab", help="which lab (default: lab)")
    parser.add_argument("--json", action="store_true", default=env_true("json"), help="the answer as JSON")
    for bound in ("--limit", "--exclude"):  # parsed, so that the error names them
        parser.add_argument(bound, help=argparse.SUPPRESS)
    set_handler(parser, Flags, run)
    return parser


def run(flags: Flags) -> int:
    """Carries one `lab` verb out. Raises TfdeployError."""
    from tfdeploy import lab
    from tfdeploy.errors import UsageError

    if flags.after is not None and flags.lab_verb != "run":
        raise UsageError(f"nothing may stand behind --: {' '.join(flags.after)}", where=f"tfdeploy lab {flags.lab_verb}")
    if flags.lab_verb == "up":
        found = lab.up(
            flags.name,
            flags.kind,
            flags.count,
            rate=flags.rate,
            python=flags.python,
            shared_workdir=flags.shared_workdir,
            gpus=flags.gpus,
            sites=flags.sites,
            between=flags.between,
        )
        _print_note(f"lab {found.name}: {len(found.hosts)} {found.kind} hosts are up")
        if found.kind == "isolated":
            _print_note(f"next: `tfdeploy lab run --name {found.name} -- bash`: only from there its hosts are reached")
        return _answer(flags, found, str(found.inventory))
    if flags.lab_verb == "down":
        lab.down(flags.name)
        _print_note(f"lab {flags.name} is gone")
        if flags.json:
            gone: LabDownAnswer = {"lab": flags.name, "ok": True}
            print(json.dumps(gone))
        return 0
    return _on_existing(flags, lab.load(flags.name))


def _on_existing(flags: Flags, found: Lab) -> int:
    if flags.lab_verb == "run":
        return _run(found, flags.after or ())
    if flags.lab_verb == "status":
        rows = [f"{row['host']}  {row['address']}:{row['port']}  {row['state']}" for row in found.status()]
        return _answer(flags, found, "\n".join(rows))
    getattr(found, flags.lab_verb)(flags.host)
    _print_note(f"{flags.lab_verb}: {flags.host}")
    return _answer(flags, found, "")


def _run(found: Lab, words: Sequence[str]) -> int:
    from tfdeploy.errors import UsageError

    if not words:
        raise UsageError("no command", where="lab run", next=f"tfdeploy lab run --name {found.name} -- tfdeploy inventory")
    argv = found.operator(list(words))
    sys.stdout.flush()
    environment = {"TFDEPLOY_INVENTORY": str(found.inventory), **os.environ}
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror}", where="lab run") from error


def _answer(flags: Flags, found: Lab, text: str) -> int:
    if flags.json:
        answer: LabAnswer = {
            "lab": found.name,
            "kind": found.kind,
            "inventory": str(found.inventory),
            "hosts": found.status(),
        }
        print(json.dumps(answer))
    elif text:
        print(text)
    return 0


def _print_note(text: str) -> None:
    print(text, file=sys.stderr)
