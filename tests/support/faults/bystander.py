"""On a host, run a program of the same user that has nothing to do with tfdeploy.

The program ends when its standard input is closed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from support.lab.host_commands import host_command
from tfdeploy.lab import Lab

IDLE = ""
LISTEN = """import socket
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.bind(("", int(sys.argv[1])))
one.listen()
"""


@contextmanager
def bystander(lab: Lab, host: str, code: str = IDLE, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run the Python code `code` on the host, and yield the process once it has started. The
    process's `poll()` is None while the process is alive.
    """
    whole = f"import sys\n{code}\nprint('up', flush=True)\nsys.stdin.read()\n"
    command = host_command(lab, host, ["python3", "-c", whole, *args])
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(120)
        process.stdout.close()
