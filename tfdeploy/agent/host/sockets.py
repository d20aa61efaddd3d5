"""Holds ports, and finds which process listens on one: by the kernel's tables, never by connecting.

A held port is bound and never listened on. TensorFlow binds beside the holder because both set SO_REUSEPORT
(TF_GRPC_REUSE_PORT=true); a process that does not cannot. Measured.
"""

from __future__ import annotations

import os
import socket
import time

from tfdeploy.agent.annotations import Iterable, Optional, Set

_LISTEN = "0A"


def claim(port: int, patience_s: float = 0.0) -> socket.socket:
    """A socket bound to `port` exclusively, to listen on. Tries for `patience_s` seconds. Raises OSError."""
    deadline = time.monotonic() + patience_s
    while True:
        claimed = _any_address()
        try:
            claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(claimed, port)
            # From now on: what its connections leave behind (TIME_WAIT) must not keep the next run from this port.
            claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return claimed
        except OSError:
            claimed.close()
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def hold(port: int, beside: bool = False) -> socket.socket:
    """A socket that keeps `port` on all addresses, IPv4 and IPv6. Raises OSError (EADDRINUSE): another process has it.

    `beside`: the tasks of this run may have it already (a minder that takes over).
    """
    held = _any_address()
    try:
        if beside:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            # Alone at the moment of the bind, open to others with REUSEPORT from then on: no moment in between.
            # REUSEADDR only for that moment: it forgives connections in TIME_WAIT.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(held, port)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        held.close()
        raise
    return held


def _any_address() -> socket.socket:
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return made
    except OSError:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def _bind(held: socket.socket, port: int) -> None:
    held.bind(("::" if held.family == socket.AF_INET6 else "0.0.0.0", port))


def listeners(port: int) -> Set[str]:
    """The inodes of the sockets that listen on `port`, IPv4 and IPv6."""
    from tfdeploy.agent.host import tcp_diag  # a supervisor whose task has no port never needs it

    told = tcp_diag.listening()
    if told is not None:
        return {str(inode) for inode, its_port in told.items() if its_port == port}
    return _listed(port)


def _listed(port: int) -> Set[str]:
    """The same where the kernel has no sock_diag."""
    inodes: Set[str] = set()
    wanted = "%04X" % port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                for line in file:
                    words = line.split()
                    if len(words) > 9 and words[3] == _LISTEN and words[1].endswith(":" + wanted):
                        inodes.add(words[9])
        except OSError:
            continue  # no IPv6
    return inodes


def listens(pids: Iterable[int], port: int, but: Optional[int] = None) -> bool:
    """Whether one of these processes listens on `port`, the socket with the inode `but` left out."""
    wanted = {"socket:[%s]" % inode for inode in listeners(port) - {str(but)}}
    return bool(wanted) and any(wanted & _files(pid) for pid in pids)


def owner(port: int) -> Optional[str]:
    """The process that listens on `port`, in words; None: there is none."""
    wanted = {"socket:[%s]" % inode for inode in listeners(port)}
    if not wanted:
        return None
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted & _files(int(name)):
            return "process %s (%s)" % (name, _command(name))
    return "a process of another user"


def _command(pid: str) -> str:
    try:
        with open("/proc/%s/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return "gone"


def _files(pid: int) -> Set[str]:
    folder = "/proc/%d/fd" % pid
    found: Set[str] = set()
    try:
        for name in os.listdir(folder):
            try:
                found.add(os.readlink(os.path.join(folder, name)))
            except OSError:
                continue
    except OSError:
        pass
    return found
