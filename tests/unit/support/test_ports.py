"""Test that pytest processes that run at the same time never use the same port."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import support.ports

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from support.ports import free_ports
print(*free_ports(20), flush=True)
sys.stdin.read()
"""


def test_simultaneous_processes_get_different_ports() -> None:
    tests = Path(support.ports.__file__).parents[1]
    command = [sys.executable, "-S", "-c", PROGRAM, str(tests)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, **pipes) for _ in range(12)]
    try:
        ports = [
            port
            for process in processes
            if process.stdout
            for port in process.stdout.readline().split()
        ]
    finally:
        for process in processes:
            process.communicate()
    assert len(ports) == len(set(ports)) == 12 * 20
