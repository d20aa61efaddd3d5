"""Reads the hostfiles of Open MPI, MPICH, Horovod and DeepSpeed, and lists with one host per line.

A line names a host; `slots=N` or `:N` after it is the number of workers there. If several lines
name the same host, as in the file that PBS writes, their numbers of workers are added up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfdeploy.config.foreign.host_list import expand_host, hosts_mapping
from tfdeploy.config.node import Node
from tfdeploy.text.nexts import CONVERT_INVENTORY

_OPTIONS = r"(?:\s+(?:slots|max[_-]slots)\s*=\s*\d+)*"
_LINE = re.compile(
    rf"(?P<host>[\w.@\[\],-]+)(?::(?P<count>\d+))?(?P<options>{_OPTIONS})"
    r"(?:\s+(?P<unknown>.+))?\Z"  # any other words; a hostfile cannot contain them
)
_SLOTS = re.compile(r"(?<![\w-])slots\s*=\s*(\d+)")
_SSH_PORT = 22
_MANY_SLOTS = 256
_MOST_DIGITS = 9


def is_hostfile(lines: Sequence[str]) -> bool:
    """Return True if every line begins with a host's name. `lines`: the lines without comments and
    empty lines."""
    return bool(lines) and all(map(_LINE.match, lines))


def read_hostfile(lines: Sequence[tuple[int, str]], file: str) -> Node:
    """Return the hosts of a hostfile as a tree in the format of an inventory. Raises ConfigError.

    `lines`: (line number, text) of each line. `is_hostfile` must have returned True for these
    lines.
    """
    hosts: dict[str, Node] = {}
    for number, line in lines:
        node = Node("text", file, number, line)
        match = _LINE.match(line)
        assert match is not None  # `is_hostfile` has checked all lines
        if match["unknown"]:
            raise node.error(
                f"{match['unknown']!r} cannot stand in a hostfile",
                "write a line as: gpu01 slots=2 max_slots=4. For other settings, first remove "
                f"these words, then {CONVERT_INVENTORY}",
            )
        for host in expand_host(match["host"], node):
            earlier = hosts.setdefault(host.keys["address"].text, host)
            slots = _stated_slots(match, node)
            if earlier is not host:
                before = earlier.keys.get("slots")
                slots = str(int(before.text if before else 1) + int(slots or 1))
            if slots:
                earlier.keys["slots"] = earlier.text_node(slots, "slots")
    return hosts_mapping(hosts.values())


def _stated_slots(match: re.Match[str], node: Node) -> str:
    """Return the number of workers that the line states; "" if it states none."""
    stated = _SLOTS.search(match["options"])
    count = stated[1] if stated else match["count"] or ""
    if len(count) > _MOST_DIGITS:
        raise node.error(f"{count:.20}... is too large a number of workers", "write slots=4")
    if not stated and count and (int(count) == _SSH_PORT or int(count) >= _MANY_SLOTS):
        raise node.error(
            f"in a hostfile, :{count} is a number of workers; is a port meant?",
            f"write slots={count} for workers, or name the hosts with ports: "
            f"-i {match['host']}:{count},",
        )
    return count
