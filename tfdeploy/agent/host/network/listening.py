"""Find out which sockets listen on a port, and which processes have these sockets. This module
reads the kernel's tables, and connects to no port."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Collection, Dict, Iterable, List, Optional, Set, Union
from tfdeploy.agent.record import NamedTuple

_LISTEN = "0A"
_SOCKET = "socket:["


class SocketRow(NamedTuple):
    """One socket in a table of /proc/net. These tables do not list sockets that are bound but do
    not listen."""

    port: int
    user: str
    inode: int


def read_rows(*, is_listening: bool) -> List[SocketRow]:
    """Return the TCP sockets that listen. If `is_listening` is False, return the TCP sockets that
    do not listen, such as connections."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                entries = [line.split() for line in lines][1:]
        except OSError:
            continue  # there is no such table, because the host has no IPv6
        for row in entries:
            if len(row) > 9 and (row[3] == _LISTEN) == is_listening:
                rows.append(SocketRow(int(row[1].rpartition(":")[2], 16), row[7], int(row[9])))
    return rows


def listener_inodes(port: int) -> Set[int]:
    """Return the inodes of the sockets that listen on `port`, over IPv4 or IPv6."""
    # Imported only here, because a supervisor whose task has no port does not need it.
    from tfdeploy.agent.host.network import tcp_diag

    traffic = tcp_diag.read_listeners()
    if traffic is not None:
        return {inode for inode, its_port in traffic.port_by_inode.items() if its_port == port}
    return {row.inode for row in read_rows(is_listening=True) if row.port == port}


def has_listener(pids: Iterable[int], port: int, except_inode: Optional[int] = None) -> bool:
    """Return True if one of these processes listens on `port`. The socket whose inode is
    `except_inode` does not count."""
    wanted = listener_inodes(port) - {except_inode}
    return bool(wanted) and any(wanted & socket_inodes(pid) for pid in pids)


def describe_owners(ports: Collection[int]) -> Dict[int, str]:
    """Return port -> who listens on it, as "pid 4242: python train.py", or as "a process of user
    1001" if this user may not see the process. Ports on which no process listens are left out."""
    wanted = [row for row in read_rows(is_listening=True) if row.port in ports]
    owners_by_port = {row.port: "a process of user %s" % row.user for row in wanted}
    by_inode = {row.inode: row.port for row in wanted}
    for pid in filter(str.isdigit, os.listdir("/proc") if wanted else ()):
        for inode in by_inode.keys() & socket_inodes(pid):
            owners_by_port[by_inode[inode]] = "pid %s: %s" % (pid, _read_command(pid))
    return owners_by_port


def socket_inodes(pid: Union[int, str]) -> Set[int]:
    """Return the inodes of the sockets of a process. The result is empty if the process has ended
    or belongs to another user."""
    folder = "/proc/%s/fd" % pid
    inodes = set()
    try:
        for name in os.listdir(folder):
            try:
                target = os.readlink(folder + "/" + name)
            except OSError:
                continue  # the descriptor was closed meanwhile
            if target.startswith(_SOCKET):
                inodes.add(int(target[len(_SOCKET) : -1]))
    except OSError:
        pass
    return inodes


def _read_command(pid: str) -> str:
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120]
    except OSError:
        return "gone"
