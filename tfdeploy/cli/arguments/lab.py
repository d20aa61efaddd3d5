"""What `tfdeploy lab` and its own verbs take."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tfdeploy.cli.declared import argument, option, switch
from tfdeploy.cli.flags import VerbFlags
from tfdeploy.cli.options import env_default, is_env_true

Kind = Literal["loopback", "isolated"]


@dataclass(frozen=True, kw_only=True)
class LabFlags(VerbFlags):
    no_selection_reason = "a lab is one whole; cut, heal, kill and boot name their host"

    verb: str
    name: str = option(
        "--name",
        default="lab",
        env=lambda _: env_default("lab-name"),
        help="which lab (default: lab)",
    )
    json: bool = switch("--json", env=is_env_true, help="the answer as JSON")
    # parsed, so that the error names it
    limit: str | None = option("--limit", help=argparse.SUPPRESS)
    exclude: str | None = option("--exclude", help=argparse.SUPPRESS)
    after_dashes: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class UpFlags(LabFlags):
    count: int = argument("N", type=int, help="how many hosts: n1 is ps, the rest are workers")
    kind: Kind = option(
        "--kind",
        choices=get_args(Kind),
        default="loopback",
        help="isolated needs root and namespaces",
    )
    rate: str | None = option(
        "--rate", help="bandwidth of each link, as tc writes it: 100mbit (isolated)"
    )
    sites: int = option(
        "--sites",
        type=int,
        default=1,
        metavar="N",
        help="at how many sites the hosts are; the operator is at the first",
    )
    between: str | None = option(
        "--between", metavar="RATE", help="bandwidth between sites (default: no limit)"
    )
    python: str = option(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="the hosts' interpreter (default: this one)",
    )
    shared_workdir: bool = switch(
        "--shared-workdir", help="one ~/tfdeploy for all hosts, like an NFS home"
    )
    gpus: str | None = option("--gpus", help="the hosts' `gpus:` (default: auto)")


@dataclass(frozen=True, kw_only=True)
class RunFlags(LabFlags):
    usage = "tfdeploy lab run [--name NAME] -- CMD"
    takes_command = True


@dataclass(frozen=True, kw_only=True)
class HostFlags(LabFlags):
    host: str = argument("HOST")


class Flags(VerbFlags):
    description = "Throw-away hosts on this machine, each a real sshd."
    no_selection_reason = LabFlags.no_selection_reason
    verbs: ClassVar = {
        "up": (
            UpFlags,
            "bring hosts up, or start again those that died; prints where the inventory is",
        ),
        "down": (LabFlags, "remove the lab: processes, namespaces, mounts, files"),
        "status": (LabFlags, "the hosts and whether they are up"),
        "run": (
            RunFlags,
            "run the command after -- as the lab's operator, who reaches the hosts (isolated: "
            "and nothing else)",
        ),
        "cut": (HostFlags, "take a host off the network (isolated)"),
        "heal": (HostFlags, "put it back on the network"),
        "kill": (HostFlags, "power a host off"),
        "boot": (HostFlags, "power it on again: same disk, same address"),
    }
