"""Test that a process of a test ends if the process that started it is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.waiting import wait_for

TESTS = Path(__file__).parents[2]
PARENT = """
import subprocess, sys
from support.parent_death import end_with_parent
child = subprocess.Popen(["sleep", "600"], preexec_fn=end_with_parent, start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def test_child_of_killed_process_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=TESTS, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    wait_for(lambda: not _is_running(child), 20.0, "the child has ended")


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
