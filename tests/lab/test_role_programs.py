"""Test a job with a program for each role: each program runs on its host, with the flags that it
defines.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from support.lab.commandline import Tfdeploy
from tfdeploy.lab import Lab

SERVER = """
import argparse, signal
p = argparse.ArgumentParser()
p.add_argument("--port_name")
p.add_argument("--job_name")
print("serves:", vars(p.parse_args()), flush=True)
signal.pause()
"""
WORKER = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--job_name")
p.add_argument("--task_index", type=int)
p.add_argument("--worker_hosts")
print("trains:", p.parse_args().task_index, flush=True)
"""


def test_each_role_runs_its_own_program(
    few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(few_hosts)
    (operator.cwd / "server.py").write_text(SERVER)
    (operator.cwd / "worker.py").write_text(WORKER)
    job = {
        "name": "two-programs",
        "mode": "async",
        "command": ["python", "worker.py"],
        "roles": {"ps": {"command": ["python", "server.py", "--port_name=x"]}},
        "ready": {"after": "200ms", "timeout": "60s"},
    }
    (operator.cwd / "tfdeploy.yaml").write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in job.items())
    )
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    rows = [
        json.loads(line)
        for line in operator.run("logs", run, "-o", "json", exit_code=0).stdout.splitlines()
    ]
    said = {(row["task"], row["line"]) for row in rows}
    assert ("ps:0", "serves: {'port_name': 'x', 'job_name': 'ps'}") in said
    assert ("worker:0", "trains: 0") in said
