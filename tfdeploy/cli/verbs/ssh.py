"""`tfdeploy ssh HOST [-- CMD]`: OpenSSH to one host, with exactly the settings that every other
verb uses."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.ssh import Flags
from tfdeploy.cli.project import job_here, whole_inventory
from tfdeploy.errors import Refused, UsageError
from tfdeploy.model.selection import select
from tfdeploy.transport.ssh.argv import shell_argv
from tfdeploy.transport.ssh.target import resolve

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory


def run(flags: Flags) -> int:
    """Replaces this process by ssh: does not return."""
    if flags.json:
        raise UsageError(
            "a shell has no JSON", where="tfdeploy ssh --json", next="tfdeploy exec --json -- CMD"
        )
    whole = whole_inventory(flags, job_here(flags))
    inventory = select(whole, flags.limit, flags.exclude)
    found = next((host for host in whole.hosts if host.name == flags.host), None)
    if found is None:
        raise UsageError(
            f"no host {flags.host!r} in the inventory",
            where=whole.source,
            next=_hint(whole, flags.host),
        )
    if found not in inventory.hosts:
        raise UsageError(
            f"host {flags.host} is left out",
            where="--limit/--exclude",
            next=f"tfdeploy ssh {flags.host}",
        )
    if shutil.which("ssh") is None:
        raise Refused("ssh is missing on this machine", next="install the package openssh-client")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = shell_argv(resolve(found), tuple(flags.after or ()), terminal=terminal)
    sys.stdout.flush()
    os.execvp(words[0], words)


def _hint(inventory: Inventory, name: str) -> str:
    names = [host.name for host in inventory.hosts]
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else "tfdeploy inventory lists the hosts"
