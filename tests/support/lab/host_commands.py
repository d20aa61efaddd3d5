"""Run commands on the hosts of a lab without SSH, and read what the links of a lab have carried."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import TypedDict

from tfdeploy.errors import UsageError
from tfdeploy.lab import Lab, network, processes, sshd
from tfdeploy.lab.isolated import UID, USER

# The options of nsenter with which a command runs in a host's namespaces and root folder.
ENTERED = ("--mount", "--net", "--pid", "--uts", "--ipc", "--root")


class LinkTraffic(TypedDict):
    """How many bytes a link has carried."""

    to_bytes: int  # to the host, or to the operator, at the end of the link
    from_bytes: int


def host_command(lab: Lab, host: str, argv: Sequence[str], *, root: bool = False) -> list[str]:
    """Return a command line that runs `argv` on a host without SSH.

    `argv` runs as the host's user, in the user's home. `root`: True to run `argv` as root, which
    only an isolated lab supports. Raises UsageError.
    """
    state = lab.host(host)
    if lab.kind == "loopback":
        if root and os.geteuid() != 0:
            raise UsageError("a loopback lab has no root", where=host)
        home = str(lab.folder_of(state) / "home")
        mark = f"{processes.MARK}={lab.root}/{host}"
        return ["env", "-C", home, f"HOME={home}", f"PATH={sshd.host_search_path()}", mark, *argv]
    first = state.process
    if first is None or not processes.is_alive(first):
        raise UsageError(
            f"{host} is off", where=host, next=f"`tfdeploy lab boot {host} --name {lab.name}`"
        )
    become = [] if root else ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    user, home = ("root", "/root") if root else (USER, f"/home/{USER}")
    return [
        *("nsenter", f"--target={first.pid}", *ENTERED, "--"),
        *become,
        *("env", "-i", "-C", home, f"HOME={home}", f"USER={user}"),
        f"PATH={sshd.host_search_path()}",
        *argv,
    ]


def read_traffic_by_link(lab: Lab) -> dict[str, LinkTraffic]:
    """Return {name: the bytes that the link of this name has carried since it was created}.

    Each running host of an isolated lab has a link, and so has the `operator`. If the lab has
    several sites, their routers `router1`, `router2` ... also have links.
    """
    lab.read_state_again()
    switch_pid = lab.state.networks["switch"].pid
    argv = network.command_in_network(switch_pid, ["ip", "-json", "-statistics", "link"])
    rows = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    counted = {row["ifname"]: row["stats64"] for row in rows if "master" in row}
    return {
        name: {"to_bytes": row["tx"]["bytes"], "from_bytes": row["rx"]["bytes"]}
        for name, row in counted.items()
    }
