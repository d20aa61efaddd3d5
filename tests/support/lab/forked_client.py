"""Start `python -m tfdeploy` as a fork of a process that has already imported tfdeploy.

A client then costs 50 ms of CPU time instead of 300 ms.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.lab.fork_server import REQUEST_BYTES

PROGRAM = Path(__file__).with_name("fork_server.py")
REPOSITORY = Path(__file__).resolve().parents[3]
# An interpreter reads these variables only at its start, so all forks have the values of the fork
# server.
ENV = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
# The prefixes of the names of variables that an interpreter reads only at its start.
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
_request_lock = threading.Lock()


def can_fork(env: Mapping[str, str]) -> bool:
    """Return True if the fork server can run a program with the variables `env`.

    It can if `env` and the fork server have the same values of all variables that an interpreter
    reads only at its start.
    """
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)} == ENV


class ForkedClient(subprocess.Popen[str]):
    """A Popen of `python -m tfdeploy WORDS` that forks and does not exec.

    The command may begin with `nsenter --net=FILE -- env NAME=VALUE`. Popen makes the pipes and
    then calls `_execute_child`. This class replaces that method, so that it forks. The client is a
    child of this process, so Popen's own methods wait for it, signal it and read its pipes. If the
    fork fails, Popen starts a new interpreter.
    """

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        # In Python 3.10 and all later versions, Popen passes these arguments in this order.
        cwd, env, pipes, session = rest[4], rest[5], rest[9:15], rest[20]
        request = {**_parse_command(args), "env": dict(env), "cwd": str(cwd), "session": session}
        request["env"].update(request.pop("variables"))
        pid = _request_fork(json.dumps(request).encode(), (pipes[0], pipes[3], pipes[5]))
        if pid is None:
            super()._execute_child(args, *rest)
            return
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*pipes)


def _parse_command(args: Sequence[str]) -> dict[str, Any]:
    """Parse a command line that runs tfdeploy in a lab. Return its network namespace, its
    environment variables and the arguments of tfdeploy.
    """
    python = args.index(sys.executable)
    prefix = args[:python]
    networks = [arg.partition("=")[2] for arg in prefix if arg.startswith("--net=")]
    variables = prefix[prefix.index("env") + 1 :] if "env" in prefix else []
    return {
        "network": "".join(networks),
        "variables": dict(variable.split("=", 1) for variable in variables),
        "words": list(args[python + 3 :]),
    }


def _request_fork(request: bytes, descriptors: Sequence[int]) -> int | None:
    """Return the client's pid, or None if the request is too long or the fork fails."""
    if len(request) > REQUEST_BYTES:
        return None
    with _request_lock:
        server = _server()
        socket.send_fds(server, [request], descriptors)
        reply = server.recv(100)
    assert reply, "the fork server has ended; its error is on this process's standard error"
    return int(reply) if int(reply) > 0 else None


@functools.cache
def _server() -> socket.socket:
    """Return the socket of this process's fork server. The first call starts the server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(theirs.fileno())],
        env={"PATH": os.environ["PATH"], **ENV},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
