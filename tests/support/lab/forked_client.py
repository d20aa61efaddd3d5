"""Starts `python -m tfdeploy` as a fork of a process that has imported it: 50 ms of CPU, not 300."""

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
# What an interpreter reads only when it starts.
ENV = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
_one_request = threading.Lock()


def can_fork(env: Mapping[str, str]) -> bool:
    """Whether a client with these variables reads what the server's interpreter has read."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)} == ENV


class ForkedClient(subprocess.Popen[str]):
    """A Popen of `[nsenter --net=FILE -- env NAME=VALUE] python -m tfdeploy WORDS` that forks and does not exec.

    `_execute_child` is what Popen calls once the pipes are there. The client is a child of this process,
    so that waiting, signals and pipes are Popen's own. A machine that refuses such a fork gets a new interpreter.
    """

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        cwd, env, pipes, session = rest[4], rest[5], rest[9:15], rest[20]  # the same from Python 3.10 on
        request = {**_entered(args), "env": dict(env), "cwd": str(cwd), "session": session}
        request["env"].update(request.pop("mark"))
        pid = _forked(json.dumps(request).encode(), (pipes[0], pipes[3], pipes[5]))
        if pid is None:
            super()._execute_child(args, *rest)
            return
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*pipes)


def _entered(args: Sequence[str]) -> dict[str, Any]:
    """The network, the variables and the words of a lab's command line."""
    at = args.index(sys.executable)
    networks = [word.partition("=")[2] for word in args[:at] if word.startswith("--net=")]
    variables = args[args.index("env") + 1 : at] if "env" in args[:at] else []
    return {
        "network": "".join(networks),
        "mark": dict(word.split("=", 1) for word in variables),
        "words": list(args[at + 3 :]),
    }


def _forked(request: bytes, descriptors: Sequence[int]) -> int | None:
    """The client's pid. None: its words are too long for a message, or this machine does not fork so."""
    if len(request) > REQUEST_BYTES:
        return None
    with _one_request:
        server = _server()
        socket.send_fds(server, [request], descriptors)
        reply = server.recv(100)
    assert reply, "the fork server has ended; its error is on this process's standard error"
    return int(reply) if int(reply) > 0 else None


@functools.cache
def _server() -> socket.socket:
    """One for each process that runs tests, from its first client to its end."""
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(other.fileno())],
        env={"PATH": os.environ["PATH"], **ENV},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[other.fileno()],
    )
    other.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
