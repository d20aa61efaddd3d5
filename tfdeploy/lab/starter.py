"""Run `tfdeploy.lab.boot` in a process of its own, send it an `Order`, and read the outcome."""

from __future__ import annotations

import json
import os
import subprocess

from tfdeploy.errors import HostFailed
from tfdeploy.lab.orders import Order, Outcome, reserved_descriptors
from tfdeploy.lab.processes import MARK
from tfdeploy.lab.sshd import STANDARD_PATH
from tfdeploy.machine.own_command import own_command

START_S = 120.0  # the longest time that the start of all hosts may take


def start_ordered_processes(order: Order) -> Outcome:
    """Start the hosts and networks that `order` lists. Raises HostFailed if `boot` fails."""
    completed = subprocess.run(
        own_command([], "tfdeploy.lab.boot"),
        input=json.dumps(order).encode(),
        capture_output=True,
        # The hosts inherit no other variables of the caller, because they could name an SSH agent
        # or a proxy.
        env={"PATH": STANDARD_PATH, MARK: order["root"], "LC_ALL": "C.UTF-8"},
        cwd="/",
        pass_fds=reserved_descriptors(order["hosts"]),
        timeout=START_S,
        check=False,
        start_new_session=True,
    )
    if completed.returncode:
        reason = os.fsdecode(completed.stderr).strip()[-800:]
        raise HostFailed(f"the lab did not start: {reason}", where=order["root"])
    outcome: Outcome = json.loads(completed.stdout)
    return outcome
