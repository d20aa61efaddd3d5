"""Serve `forked_client.py`: import tfdeploy once, then fork one client per request.

A client is a process that runs one command of tfdeploy. The server starts no thread and opens only
its socket, so a forked client behaves like a new interpreter. The parent of a client is the process
that sent the request (CLONE_PARENT), not the server, so the sender can wait for the client.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import platform
import signal
import socket
import sys
import time

import tfdeploy

# The size limit of a request.
REQUEST_BYTES = 100_000
NOT_OF_CLIENTS = ("tfdeploy.agent", "tfdeploy.runtime", "tfdeploy.__main__")
# Modules that tfdeploy imports only when a command needs them. The server imports them in advance.
LATE_IMPORTS = (
    *("cryptography.hazmat.primitives.serialization", "cryptography.x509", "fabric", "invoke"),
    *("rich.live", "rich.text", "webbrowser", "getpass", "shlex", "difflib", "tempfile"),
)
# {machine: number of the system call clone}
CLONE_NUMBER = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT, CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID = 0x8000, 0x01000000, 0x00200000
PR_GET_TID_ADDRESS = 40
CLONE_NEWNET = 0x40000000


def import_clients() -> None:
    """Import every module that a client may need."""
    for module in pkgutil.walk_packages(tfdeploy.__path__, "tfdeploy."):
        if not module.name.startswith(NOT_OF_CLIENTS):
            importlib.import_module(module.name)
    for name in LATE_IMPORTS:
        importlib.import_module(name)


def fork_sibling() -> int:
    """Fork a child of this process's parent. Return its pid, 0 in the child, or -1 on failure.

    This calls `clone` directly, because `os.fork` takes no flags. As in libc's own fork, the kernel
    writes the child's thread id to the address where libc expects it.
    """
    libc = ctypes.PyDLL(None)
    libc.syscall.argtypes, libc.syscall.restype = [ctypes.c_long] * 6, ctypes.c_long
    address, number = ctypes.c_long(), CLONE_NUMBER.get(platform.machine())
    if number is None or libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0):
        return -1
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    # The order of the last two arguments (child_tid, tls) depends on the architecture.
    last = (address, 0) if number == CLONE_NUMBER["x86_64"] else (0, address)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = libc.syscall(number, flags, 0, 0, *last)
    ctypes.pythonapi.PyOS_AfterFork_Parent() if pid else ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def become_client(request: dict[str, object], descriptors: list[int]) -> None:
    """Put this process into the state in which `python -m tfdeploy` starts.

    `request` has the keys session (bool: whether to start a new session), network (path of a
    network namespace, or ""), cwd, env and words (the arguments). `descriptors` become the standard
    input, output and error of this process.
    """
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["network"]:
        _enter_network(str(request["network"]))
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv[1:] = request["words"]
    sys.argv[0] = os.path.join(tfdeploy.__path__[0], "__main__.py")
    # Remove the current folder from sys.path, as tfdeploy/__main__.py does.
    del sys.path[0]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115 - the stream stays open
            number,
            "w" if number else "r",
            buffering=1 if number == 2 else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _enter_network(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), path)
    os.close(descriptor)


def serve(control: socket.socket) -> None:
    """Answer each request with the pid of a new client. Returns only in the clients.

    The server exits when the process that sends requests closes its end.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 3)
        if not message:
            sys.exit()
        pid = fork_sibling()
        if pid == 0:
            gc.enable()
            control.close()
            become_client(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(b"%d" % pid)


if __name__ == "__main__":
    # Ctrl-C must end the clients but not this server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_clients()
    assert os.listdir("/proc/self/task") == [str(os.getpid())], "an import has started a thread"
    gc.collect()
    gc.freeze()
    # Python holds locks during a fork. A collection at that moment would wait for them forever.
    gc.disable()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from tfdeploy.cli.main import program

    program()
