"""Starts another process of the agent, whose errors go to a log."""

from __future__ import annotations

import subprocess

from tfdeploy.agent.annotations import Any
from tfdeploy.agent.run.folder import agent_command


def start_agent(log_path: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    """`words`: a verb of main.py and its arguments. `options`: for Popen, over those that all have.

    Raises NotOurs, OSError."""
    with open(log_path, "ab") as log:
        given = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
        return subprocess.Popen(agent_command(*words), **{**given, **options})
