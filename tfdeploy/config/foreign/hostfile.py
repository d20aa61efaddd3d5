"""Read the hostfiles of Open MPI, MPICH, Horovod and DeepSpeed, and lists with one host a line.

A line is a host with `slots=N` or `:N`, its number of workers. A host that stands on several lines,
as in the file that PBS writes, has the sum.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfdeploy.config.foreign.host_list import ListedHost, expand_host, hosts_mapping
from tfdeploy.config.node import Node

_OPTIONS = r"(?:\s+(?:slots|max[_-]slots)\s*=\s*\d+)*"
_LINE = re.compile(rf"(?P<host>[\w.@\[\],-]+)(?::(?P<count>\d+))?(?P<options>{_OPTIONS})\Z")
_SLOTS = re.compile(r"(?<![\w-])slots\s*=\s*(\d+)")
_SSH_PORT = 22
_MANY_SLOTS = 256


def is_hostfile(lines: Sequence[str]) -> bool:
    """Return True if each of the lines, which are neither empty nor comments, names a host."""
    return bool(lines) and all(map(_LINE.match, lines))


def read_hostfile(lines: Sequence[tuple[int, str]], file: str) -> Node:
    """Return an inventory's top mapping. `lines`: (number, text) of those that name a host. Raises
    ConfigError."""
    hosts: dict[str, ListedHost] = {}
    for number, line in lines:
        node = Node("text", file, number, line)
        match = _LINE.match(line)
        if match is None:
            raise node.error(f"{line!r} is not a line of a hostfile", "write it as: gpu01 slots=2")
        for host in expand_host(match["host"], node):
            earlier = hosts.setdefault(host.settings["address"], host)
            slots = _slots(match, node) or ("1" if earlier is not host else "")
            if slots:
                before = 0 if earlier is host else int(earlier.settings.get("slots", "1"))
                earlier.settings["slots"] = str(before + int(slots))
    return hosts_mapping(hosts.values())


def _slots(match: re.Match[str], node: Node) -> str:
    """Return the number of workers that the line states, "" if none."""
    stated = _SLOTS.search(match["options"])
    if stated is not None:
        return stated[1]
    count = match["count"] or ""
    if count and (int(count) == _SSH_PORT or int(count) >= _MANY_SLOTS):
        raise node.error(
            f":{count} is a number of workers in a hostfile; is a port meant?",
            f"write slots={count} for workers, or name the hosts with ports: "
            f"-i {match['host']}:{count},",
        )
    return count
