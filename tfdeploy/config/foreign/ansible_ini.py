"""Reads an Ansible inventory in INI form: [group], [group:vars] and [group:children]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tfdeploy.config.foreign.ansible import (
    Groups,
    add_folder_variables,
    expand_pattern,
    make_inventory,
    split_words,
)
from tfdeploy.config.node import Node

_SECTION = re.compile(r"\[(?P<group>[\w.-]+)(?::(?P<kind>\w+))?\]\Z")
_VARIABLE = re.compile(r"[A-Za-z_]\w*\s*=")
_PORT = re.compile(r"(?P<pattern>[^:\[]*(?:\[[^\]]*\][^:\[]*)*):(?P<port>\d+)\Z")


def is_ini(lines: Sequence[str]) -> bool:
    """Return True if any line is a section header, or a host with an ansible_... variable."""
    return any(_SECTION.match(line) or re.search(r"\sansible_\w+=", line) for line in lines)


def read_ini(lines: Sequence[tuple[int, str]], file: str, folder: Path) -> Node:
    """Return the inventory as a tree in tfdeploy's own format. Raises ConfigError.

    `lines`: (line number, text) of each line that is not a comment. `folder`: the folder that may
    contain group_vars/ and host_vars/.
    """
    groups = Groups(Node("mapping", file, 1))
    group, kind = "ungrouped", "hosts"
    for number, line in lines:
        node = Node("text", file, number, line)
        section = _SECTION.match(line)
        if section is not None:
            group, kind = section["group"], section["kind"] or "hosts"
            groups.group(group)
            if kind not in ("hosts", "vars", "children"):
                raise node.error(
                    f"unknown kind of section {kind!r}", "write [GROUP:vars] or [GROUP:children]"
                )
        elif kind == "vars":
            name, _, text = line.partition("=")
            groups.group(group).variables[name.strip()] = _unquoted_value(text, node)
        elif kind == "children":
            groups.add_children(group, [line])
        else:
            _add_hosts(groups, group, node)
    add_folder_variables(groups, folder)
    return make_inventory(groups)


def _add_hosts(groups: Groups, group: str, node: Node) -> None:
    pattern, *words = split_words(node, node.text)
    variables: dict[str, Node] = {}
    with_port = _PORT.match(pattern)
    if with_port is not None:
        pattern = with_port["pattern"]
        variables["ansible_port"] = node.text_node(with_port["port"])
    for word in words:
        if not _VARIABLE.match(word):
            raise node.error(f"{word!r} is not NAME=VALUE", "write one host on each line")
        name, _, text = word.partition("=")
        variables[name] = _unquoted_value(text, node)
    for name in expand_pattern(pattern, node):
        groups.add_host(name, group, node)
        groups.variables.setdefault(name, {}).update(variables)


def _unquoted_value(text: str, node: Node) -> Node:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return node.text_node(text)
