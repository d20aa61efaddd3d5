"""Reads an Ansible inventory in YAML form: groups with `hosts`, `vars` and `children`."""

from __future__ import annotations

from pathlib import Path

from tfdeploy.config.foreign.ansible import (
    ASK_ANSIBLE,
    Groups,
    add_folder_variables,
    expand_pattern,
    make_inventory,
)
from tfdeploy.config.node import Node

_PARTS = {"hosts", "vars", "children"}


def is_ansible(root: Node) -> bool:
    """Return True if the file defines groups as Ansible does, or configures an Ansible plugin."""
    return "plugin" in root.keys or any(child.keys.keys() & _PARTS for child in root.keys.values())


def read_groups(root: Node, path: Path) -> Node:
    """Return the inventory as a tree in tfdeploy's own format. Raises ConfigError."""
    if "plugin" in root.keys:
        raise root.keys["plugin"].error(
            "this file configures an inventory plugin of Ansible, and tfdeploy cannot run it",
            ASK_ANSIBLE.format(file=root.file),
        )
    groups = Groups(root)
    for name, node in root.keys.items():
        _add_group(groups, name, node)
    add_folder_variables(groups, path.parent)
    return make_inventory(groups)


def _add_group(groups: Groups, name: str, node: Node) -> None:
    group = groups.group(name)
    if node.kind == "nothing":
        return
    for key, part in node.mapping("a group: hosts, vars and children").items():
        if key not in _PARTS:
            raise part.error(
                f"a group cannot have {key!r}", "the keys of a group are hosts, vars and children"
            )
        entries = {} if part.kind == "nothing" else part.mapping()
        if key == "vars":
            group.variables |= entries
        elif key == "children":
            groups.add_children(name, entries)
            for child, below in entries.items():
                _add_group(groups, child, below)
        else:
            for pattern, own in entries.items():
                for host in expand_pattern(pattern, own):
                    groups.add_host(host, name, own)
                    variables = {} if own.kind == "nothing" else own.mapping()
                    groups.variables.setdefault(host, {}).update(variables)
