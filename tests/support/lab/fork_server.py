"""The program of `forked_client.py`: imports tfdeploy once, and forks one client for each request.

It starts no thread and opens nothing but its socket, so a fork is as good as a new interpreter. Each
client is a child of the process that asked (CLONE_PARENT), which waits for it as for its own.
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

REQUEST_BYTES = 100_000
NOT_OF_CLIENTS = ("tfdeploy.agent", "tfdeploy.runtime", "tfdeploy.__main__")
# What verbs import when they need it.
LATER = ("cryptography.hazmat.primitives.serialization", "cryptography.x509", "fabric", "invoke")
LATER += ("rich.live", "rich.text", "webbrowser", "getpass", "shlex", "difflib", "tempfile")
CLONE_NUMBER = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT, SET_TID, CLEAR_TID = 0x8000, 0x01000000, 0x00200000
GET_TID_ADDRESS = 40  # of prctl
NEW_NETWORK = 0x40000000  # of setns


def import_clients() -> None:
    """Import every module that a client may need."""
    for module in pkgutil.walk_packages(tfdeploy.__path__, "tfdeploy."):
        if not module.name.startswith(NOT_OF_CLIENTS):
            importlib.import_module(module.name)
    for name in LATER:
        importlib.import_module(name)


def fork_sibling() -> int:
    """Fork a child of this process's parent. Return its pid, 0 in the child, or -1 where that cannot be had.

    `os.fork` knows no flags. As in libc's own, the new thread's id replaces the old one in libc's memory.
    """
    libc = ctypes.PyDLL(None)
    libc.syscall.argtypes, libc.syscall.restype = [ctypes.c_long] * 6, ctypes.c_long
    address, number = ctypes.c_long(), CLONE_NUMBER.get(platform.machine())
    if number is None or libc.prctl(GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0):
        return -1
    flags = CLONE_PARENT | SET_TID | CLEAR_TID | signal.SIGCHLD
    after = (address, 0) if number == CLONE_NUMBER["x86_64"] else (0, address)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = libc.syscall(number, flags, 0, 0, *after)
    ctypes.pythonapi.PyOS_AfterFork_Parent() if pid else ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def become_client(request: dict[str, object], descriptors: list[int]) -> None:
    """Make this process what a new interpreter with these arguments would be."""
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
    sys.path[0] = os.getcwd()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        how = {"buffering": 1 if number == 2 else -1, "encoding": old.encoding, "errors": old.errors}
        fresh = open(number, "w" if number else "r", closefd=False, **how)  # noqa: SIM115 - a number
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _enter_network(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), path)
    os.close(descriptor)


def serve(control: socket.socket) -> None:
    """Return in each client. The server ends with the process that asks it."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 3)
        if not message:
            sys.exit()
        pid = fork_sibling()
        if pid == 0:
            control.close()
            become_client(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(b"%d" % pid)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the clients
    import_clients()
    assert os.listdir("/proc/self/task") == [str(os.getpid())], "an import has started a thread"
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from tfdeploy.cli.main import program

    program()
