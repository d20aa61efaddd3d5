"""Run `tfdeploy ssh`: start OpenSSH to one host, with the same settings as other verbs."""

from __future__ import annotations

import os
import shutil
import sys

from tfdeploy.cli.arguments.ssh import Flags
from tfdeploy.cli.project import load_job_if_any, load_whole_and_selected_inventory
from tfdeploy.errors import Refused, UsageError
from tfdeploy.text.nexts import did_you_mean
from tfdeploy.transport.ssh.argv import shell_argv
from tfdeploy.transport.ssh.target import resolve


def run(flags: Flags) -> int:
    """Replace this process by ssh with exec, so that this function returns only by an error."""
    if flags.json:
        raise UsageError(
            "a shell on a host prints no JSON",
            where="tfdeploy ssh --json",
            next="`tfdeploy exec --json -- CMD`",
        )
    whole, inventory = load_whole_and_selected_inventory(flags, load_job_if_any(flags))
    hosts = {host.name: host for host in whole.hosts}
    host = hosts.get(flags.host)
    if host is None:
        raise UsageError(
            f"no host {flags.host!r} in the inventory",
            where=whole.source,
            next=did_you_mean(flags.host, hosts, "`tfdeploy inventory` lists the hosts"),
        )
    if host not in inventory.hosts:
        raise UsageError(
            f"host {flags.host} is excluded",
            where="--limit/--exclude",
            next=f"`tfdeploy ssh {flags.host}`",
        )
    if shutil.which("ssh") is None:
        raise Refused("ssh is missing on this machine", next="install the package openssh-client")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = shell_argv(resolve(host), flags.after_dashes or (), terminal=terminal)
    sys.stdout.flush()
    os.execvp(argv[0], argv)
