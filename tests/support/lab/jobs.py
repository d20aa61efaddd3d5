"""Write job files for tests of the command line. The programs do not use TensorFlow and start at
once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host

PROGRAMS = Path(__file__).parents[2] / "lab" / "programs"
# These programs listen on the address that their flags name.
LISTENING = ("listening.py", "quick.py", "stubborn.py")


def write_job(operator: Tfdeploy, name: str, program: str, *flags: str, **keys: object) -> None:
    """Write tfdeploy.yaml and the program to the operator's folder.

    `keys` are further keys of the job file.
    """
    shutil.copy(PROGRAMS / program, operator.cwd / program)
    job: dict[str, object] = {
        "name": name,
        "mode": "async",
        "command": ["python", program, *flags],
        "ready": {"after": _ready_after(program, keys)},
    }
    # By default no task is restarted, so a test sees what the death of a task does to the run.
    # Tests of restarts set the key `restart` themselves.
    job["restart"] = {"max": 0}
    rows = [f"{key}: {json.dumps(value)}" for key, value in {**job, **keys}.items()]
    (operator.cwd / "tfdeploy.yaml").write_text("\n".join(rows) + "\n")


def _ready_after(program: str, keys: Mapping[str, object]) -> str:
    """Return `ready.after` for a job. A program that listens on its port is up as soon as it does.
    So the time is long for such a program: on a busy machine, its start takes longer than 300 ms.
    """
    listens = program in LISTENING and "flags" not in keys
    by_flags = listens and keys.get("mode", "async") in ("async", "sync")
    return "60s" if by_flags or program == "greeting.py" else "300ms"


def open_gate(operator: Tfdeploy, run: str, job: str, *hosts: str) -> None:
    """Programs with the flag --gate wait until a file exists. Create this file, so that they
    continue.

    `hosts`: the hosts on which to create the file (default: all hosts).
    """
    for host in hosts or operator.lab.hosts:
        on_host(operator.lab, host, f"touch ~/tfdeploy/{job}/runs/{run}/cwd/gate")


def narrow_inventory(operator: Tfdeploy, **defaults: object) -> None:
    """Replace the operator's inventory by the inventory of the lab, with these keys added to
    `defaults:`."""
    lines = operator.lab.inventory.read_text().splitlines()
    at = lines.index("defaults:") + 1
    lines[at:at] = [f"  {key}: {json.dumps(value)}" for key, value in defaults.items()]
    inventory = operator.home / "inventory.yaml"
    inventory.write_text("\n".join(lines) + "\n")
    operator.env["TFDEPLOY_INVENTORY"] = str(inventory)
