"""Reads an inventory in any format that tfdeploy knows, and converts it to tfdeploy's own format.

The other formats are Ansible's INI and YAML, hostfiles of MPI, Horovod and DeepSpeed, and a list
of hosts. The format is recognised by the content. Each setting keeps its file and line.
"""

from __future__ import annotations

import os
from pathlib import Path

from tfdeploy.config.foreign.host_list import is_host_list, read_host_list
from tfdeploy.config.node import Node
from tfdeploy.config.yamlfile import parse_yaml, read_text, shown_path

_YAML = (".yaml", ".yml", ".json")


def read_inventory_tree(path: Path) -> Node:
    """Return the inventory as a tree in tfdeploy's own format. Raises ConfigError."""
    if is_host_list(str(path)) and not path.exists():
        return read_host_list(str(path), os.environ)
    text = read_text(path)
    tree = None if path.suffix in _YAML else _read_hostfile_or_ini(text, path)
    if tree is not None:
        return tree
    root = parse_yaml(text, path)
    # A YAML file in tfdeploy's own format needs no reader of Ansible's format, so `ansible_yaml` is
    # not imported for it.
    if "hosts" in root.keys:
        return root
    from tfdeploy.config.foreign import ansible_yaml

    return ansible_yaml.read_groups(root, path) if ansible_yaml.is_ansible(root) else root


def _read_hostfile_or_ini(text: str, path: Path) -> Node | None:
    """Return the tree of a hostfile or an INI file; None if the text is neither."""
    from tfdeploy.config.foreign import ansible_ini, hostfile

    lines = [
        (number, line.split(" #")[0].strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and line.lstrip()[0] not in "#;"
    ]
    for number, line in lines:
        if line[0] == "[" and "]" not in line:
            header = Node("text", shown_path(path), number)
            raise header.error(
                f"the section header {line} has no closing bracket", f"write {line}]"
            )
    texts = [line for _, line in lines]
    # The INI form is tried first, because a section header looks like a range in a hostfile, such
    # as [01-08].
    if ansible_ini.is_ini(texts):
        return ansible_ini.read_ini(lines, shown_path(path), path.parent)
    if hostfile.is_hostfile(texts):
        return hostfile.read_hostfile(lines, shown_path(path))
    return None
