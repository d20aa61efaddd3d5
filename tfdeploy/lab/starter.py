"""Runs `tfdeploy.lab.boot`, a process of its own, with an order, and reads its answer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tfdeploy.errors import HostFailed
from tfdeploy.lab.folder import host_folder
from tfdeploy.lab.orders import Order
from tfdeploy.lab.processes import MARK, end_all, identify, marked, own_ancestry, with_descendants
from tfdeploy.lab.sshd import STANDARD_PATH
from tfdeploy.lab.state import LabState, save
from tfdeploy.machine.own_command import own_command

START_S = 120.0


def _marked_environment(root: Path) -> dict[str, str]:
    """Hosts inherit only the mark: no SSH agent's socket, no proxy, nothing else of the caller's."""
    return {"PATH": STANDARD_PATH, MARK: str(root), "LC_ALL": "C.UTF-8"}


def end_strays(root: Path, state: LabState) -> None:
    """Ends first processes that are not in the state, because an `up` was killed before it saved them."""
    known = {process.pid for process in (*state.networks.values(), *(host.process for host in state.hosts)) if process}
    end_all(lambda: with_descendants(marked(str(root), below=False) - known) - known - own_ancestry())


def console_tail(root: Path, host: str) -> str:
    try:
        return (host_folder(root, host) / "console.log").read_text(errors="replace")[-800:].strip()
    except OSError:
        return ""


def start(root: Path, state: LabState, order: Order) -> None:
    """Carries the order out and records the first processes in the state, also of those that came up beside a failed
    one. Raises HostFailed, naming the first host that did not start, with its console."""
    done = subprocess.run(
        own_command([], "tfdeploy.lab.boot"),
        input=json.dumps(order).encode(),
        capture_output=True,
        env=_marked_environment(root),
        cwd="/",
        pass_fds=order["kept"],
        timeout=START_S,
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        raise HostFailed("the lab did not start: " + os.fsdecode(done.stderr).strip()[-800:], where=str(root))
    answer = json.loads(done.stdout)
    hosts = {host.name: host for host in state.hosts}
    for name, pid in answer["pids"].items():
        process = identify(pid)
        if name in hosts:
            hosts[name].process = process
        elif process:
            state.networks[name] = process
    save(root, state)
    for name, reason in answer["errors"].items():
        raise HostFailed(f"{name} did not start: {reason}", where=str(root), next=console_tail(root, name) or None)
