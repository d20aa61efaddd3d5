"""Declare the flags of `tfdeploy lab` and of its own verbs."""

from __future__ import annotations

import argparse
from typing import ClassVar, Literal, get_args

from tfdeploy.cli.declared import argument, option, switch
from tfdeploy.cli.flags import VerbFlags
from tfdeploy.cli.options import env_default, is_env_true

Kind = Literal["loopback", "isolated"]


class LabFlags(VerbFlags):
    no_selection_reason = "cut, heal, kill and boot name a host; the other verbs act on all hosts"

    verb: str
    name: str = option(
        "--name",
        default="lab",
        env=lambda _: env_default("lab-name"),
        help="the name of the lab (default: lab)",
    )
    json: bool = switch("--json", env=is_env_true, help="print the answer as JSON")
    # No lab verb accepts --limit or --exclude. They are parsed only so that an error can name them.
    limit: str | None = option("--limit", help=argparse.SUPPRESS)
    exclude: str | None = option("--exclude", help=argparse.SUPPRESS)
    after_dashes: tuple[str, ...] | None = None


class UpFlags(LabFlags):
    count: int = argument(
        "N", type=int, help="the number of hosts; host n1 is the ps, the others are workers"
    )
    kind: Kind = option(
        "--kind",
        choices=get_args(Kind),
        default="loopback",
        help="loopback: all hosts share this machine's network; isolated: each host has its own "
        "network, which needs root and namespaces; default: loopback",
    )
    rate: str | None = option(
        "--rate", help="isolated: bandwidth of each link, in tc's notation, such as 100mbit"
    )
    sites: int = option(
        "--sites",
        type=int,
        default=1,
        metavar="N",
        help="isolated: spread the hosts over N sites; the operator is at the first site",
    )
    between: str | None = option(
        "--between", metavar="RATE", help="bandwidth between sites (default: no limit)"
    )
    python: str | None = option(
        "--python",
        metavar="PATH",
        help="the Python of the hosts; by default, the first one with TensorFlow among tfdeploy's "
        "own Python, the Python of the active environment, and python3 on PATH",
    )
    shared_workdir: bool = switch(
        "--shared-workdir", help="share one ~/tfdeploy among all hosts, like an NFS home"
    )
    gpus: str | None = option("--gpus", help="the value of `gpus:` for the hosts (default: auto)")


class RunFlags(LabFlags):
    usage = "tfdeploy lab run [--name NAME] -- CMD"
    takes_command = True


class HostFlags(LabFlags):
    host: str = argument("HOST")


class Flags(VerbFlags):
    description = "Throw-away hosts on this machine, each with a real sshd."
    no_selection_reason = LabFlags.no_selection_reason
    verbs: ClassVar = {
        "up": (
            UpFlags,
            "start the hosts, or restart those that died; prints the path of the inventory",
        ),
        "down": (LabFlags, "remove the lab: processes, namespaces, mounts, files"),
        "status": (LabFlags, "show the hosts and whether they are up"),
        "run": (
            RunFlags,
            "run the command after -- as the lab's operator, who can reach the hosts; in an "
            "isolated lab, the operator can reach nothing else",
        ),
        "cut": (HostFlags, "in an isolated lab, disconnect a host from the network"),
        "heal": (HostFlags, "connect a disconnected host to the network again"),
        "kill": (HostFlags, "power a host off"),
        "boot": (HostFlags, "power a host on again, with the same disk and address"),
    }
