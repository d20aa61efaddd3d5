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
from tfdeploy.config.yamlfile import MAX_DEPTH

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
    seen: set[tuple[str, int]] = set()
    for name, node in root.keys.items():
        _add_group(groups, name, node, seen, 1)
    add_folder_variables(groups, path.parent)
    return make_inventory(groups)


def _add_group(
    groups: Groups, name: str, node: Node, seen: set[tuple[str, int]], depth: int
) -> None:
    """Add the group and its children.

    With aliases, a file of 1 KB can name the same node a million times, so `seen` has the (name,
    id of the node) of all groups that were added.
    """
    group = groups.group(name)
    if node.kind == "nothing" or (name, id(node)) in seen:
        return
    seen.add((name, id(node)))
    if depth > MAX_DEPTH:
        raise node.error(
            f"groups are nested more than {MAX_DEPTH} levels deep", "nest them less deeply"
        )
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
                _add_group(groups, child, below, seen, depth + 1)
        else:
            for pattern, own in entries.items():
                for host in expand_pattern(pattern, own):
                    groups.add_host(host, name, own)
                    variables = {} if own.kind == "nothing" else own.mapping()
                    groups.variables.setdefault(host, {}).update(variables)
