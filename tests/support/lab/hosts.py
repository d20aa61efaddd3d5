"""Change a host without tfdeploy, and rewrite the inventory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from tfdeploy.lab import Lab

WAIT_S = 300


def on_host(lab: Lab, host: str, script: str, *, root: bool = False, check: bool = True) -> str:
    """Return the output of a shell script on the host.

    SSH is not used. If `check` is True, the script must succeed.
    """
    command = host_command(lab, host, ["sh", "-c", script], root=root)
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=WAIT_S, check=False
    )
    assert not check or done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@contextmanager
def host_changed_by_scripts(lab: Lab, host: str, do: str, undo: str) -> Iterator[None]:
    """Run the script `do` before the block and the script `undo` after it, as root on an isolated
    host.
    """
    on_host(lab, host, do, root=True)
    try:
        yield
    finally:
        on_host(lab, host, undo, root=True)


def set_inventory(
    operator: Tfdeploy,
    *,
    defaults: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    roles: Mapping[str, Any] | None = None,
) -> Path:
    """Replace the operator's inventory by the inventory of the lab with the given changes.

    A key whose new value is None is removed.
    """
    read = yaml.safe_load(operator.lab.inventory.read_text())
    read["defaults"] = _without_none({**read["defaults"], **(defaults or {})})
    for name, keys in (hosts or {}).items():
        read["hosts"][name] = _without_none({**read["hosts"].get(name, {}), **keys})
    if roles is not None:
        read["roles"] = dict(roles)
    path = operator.home / "inventory.yaml"
    path.write_text(json.dumps(read, indent=1))
    operator.env["TFDEPLOY_INVENTORY"] = str(path)
    return path


def _without_none(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


def reboot(lab: Lab, host: str, *, sshd_lines: str = "") -> None:
    """Reboot the host with additional lines at the beginning of its sshd_config.

    These lines take precedence, because sshd uses the first line of each setting.
    """
    config = lab.root / "hosts" / host / "sshd_config"
    text = config.read_text().partition("# changed\n")[2] or config.read_text()
    config.write_text(f"{sshd_lines}\n# changed\n{text}" if sshd_lines else text)
    lab.kill(host)
    lab.boot(host)
