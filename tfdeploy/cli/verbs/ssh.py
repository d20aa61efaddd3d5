"""Run `tfdeploy ssh`: start OpenSSH to one host, with the same settings as other verbs."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.ssh import Flags
from tfdeploy.cli.project import load_job_if_any, load_whole_inventory
from tfdeploy.errors import Refused, UsageError
from tfdeploy.model.selection import select
from tfdeploy.transport.ssh.argv import shell_argv
from tfdeploy.transport.ssh.target import resolve

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory


def run(flags: Flags) -> int:
    """Replace this process by ssh. Does not return."""
    if flags.json:
        raise UsageError(
            "a shell has no JSON", where="tfdeploy ssh --json", next="`tfdeploy exec --json -- CMD`"
        )
    whole_inventory = load_whole_inventory(flags, load_job_if_any(flags))
    inventory = select(whole_inventory, flags.limit, flags.exclude)
    host = next((host for host in whole_inventory.hosts if host.name == flags.host), None)
    if host is None:
        raise UsageError(
            f"no host {flags.host!r} in the inventory",
            where=whole_inventory.source,
            next=_suggest_host(whole_inventory, flags.host),
        )
    if host not in inventory.hosts:
        raise UsageError(
            f"host {flags.host} is left out",
            where="--limit/--exclude",
            next=f"`tfdeploy ssh {flags.host}`",
        )
    if shutil.which("ssh") is None:
        raise Refused("ssh is missing on this machine", next="install the package openssh-client")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = shell_argv(resolve(host), tuple(flags.after_dashes or ()), terminal=terminal)
    sys.stdout.flush()
    os.execvp(argv[0], argv)


def _suggest_host(inventory: Inventory, name: str) -> str:
    names = [host.name for host in inventory.hosts]
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else "`tfdeploy inventory` lists the hosts"
