"""Reads an Ansible inventory by running the program ansible-inventory.

The program also understands vaults, templates and plugins. tfdeploy's own readers do not.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tfdeploy.config.foreign.ansible import Groups, make_inventory
from tfdeploy.config.node import Node
from tfdeploy.config.yamlfile import shown_path

_TIMEOUT_S = 60


def run_ansible_inventory(path: Path) -> Node:
    """Return the inventory as a tree in tfdeploy's own format.

    Raises ConfigError, with the error output of ansible-inventory if that program fails.
    """
    at = Node("mapping", shown_path(path), 0)
    command = ["ansible-inventory", "-i", str(path), "--list"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        answer = json.loads(done.stdout)
    except FileNotFoundError as error:
        raise at.error("ansible-inventory is not installed here", "install ansible-core") from error
    except subprocess.CalledProcessError as error:
        raise at.error(
            f"ansible-inventory failed: {error.stderr.strip()}", "correct the inventory"
        ) from error
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise at.error(
            f"ansible-inventory gave no answer: {error}",
            f"run `ansible-inventory -i {at.file} --list` by hand",
        ) from error
    return make_inventory(_groups_from_json(answer, at))


def _groups_from_json(answer: dict[str, Any], at: Node) -> Groups:
    groups = Groups(at)
    for host, variables in answer.pop("_meta", {}).get("hostvars", {}).items():
        groups.hosts[host] = at
        groups.variables[host] = {
            name: at.text_node(str(value)) for name, value in variables.items()
        }
    for name, content in answer.items():
        groups.group(name)
        groups.add_children(name, content.get("children", ()))
        for host in content.get("hosts", ()):
            groups.add_host(host, name, at)
    return groups
