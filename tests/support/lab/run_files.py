"""Read the files of a run on its hosts, without tfdeploy."""

from __future__ import annotations

import json
from typing import Any

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host

ALIVE = (
    "for each in {pids}; do grep -s '^State:' /proc/$each/status | grep -qv Z && echo $each; "
    "done; true"
)


def host_folder(run: str, job: str, host: str) -> str:
    return f"~/tfdeploy/{job}/runs/{run}/hosts/{host}"


def task_folder(run: str, job: str, host: str, task: str) -> str:
    return f"{host_folder(run, job, host)}/tasks/{task.replace(':', '-')}"


def task_status(operator: Tfdeploy, run: str, job: str, host: str, task: str) -> dict[str, Any]:
    """Return status.json of one task."""
    answer: dict[str, Any] = json.loads(
        on_host(operator.lab, host, f"cat {task_folder(run, job, host, task)}/status.json")
    )
    return answer


def host_state(operator: Tfdeploy, run: str, job: str, host: str) -> dict[str, Any]:
    """Return state.json of one host."""
    answer: dict[str, Any] = json.loads(
        on_host(operator.lab, host, f"cat {host_folder(run, job, host)}/state.json")
    )
    return answer


def list_alive(operator: Tfdeploy, host: str, *pids: int) -> list[int]:
    """Return the pids that are alive on the host. Zombies do not count."""
    return [
        int(pid)
        for pid in on_host(operator.lab, host, ALIVE.format(pids=" ".join(map(str, pids)))).split()
    ]


def kill(operator: Tfdeploy, host: str, *pids: int, number: int = 9, check: bool = True) -> None:
    """Send the signal `number` to the pids.

    If `check` is True, all processes must exist. Use check=False if the death of one of them ends
    another one.
    """
    on_host(
        operator.lab, host, f"kill -{number} {' '.join(map(str, pids))}", root=True, check=check
    )
