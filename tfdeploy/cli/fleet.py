"""Open sessions to the hosts, and tell the hosts who the operator is."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.model.answers.hosts import LockHolder
    from tfdeploy.model.inventory import Host
    from tfdeploy.transport.fleet import SshFleet


def start_early_connections(hosts: Iterable[Host]) -> None:
    """Start the TCP connections to the hosts now, before the SSH libraries are imported.

    The imports take about as long as some hosts take to answer.
    """
    from tfdeploy.transport.ssh import early

    early.start_connections(hosts)


@contextmanager
def open_fleet(flags: CommonFlags, bwlimit: int | None = None) -> Iterator[SshFleet]:
    """Yield a fleet, which is closed at the end of the `with` block.

    `bwlimit`: bytes per second for each host. If it is None, the host's `bwlimit` in the inventory
    applies.
    """
    from tfdeploy.transport.fleet import SshFleet

    fleet = SshFleet(
        parallel=flags.parallel, operator=operator_name(), bwlimit=bwlimit, on_notice=show_notice
    )
    try:
        yield fleet
    finally:
        fleet.close()


def show_notice(host: str, text: str) -> None:
    """Print a notice about a host on stderr, for verbs whose event view does not show notices."""
    print(f"[{host}] {text}", file=sys.stderr, flush=True)


def operator_name() -> str:
    """Return user@machine of the operator, which `tfdeploy audit` and `tfdeploy runs` show."""
    return f"{_user_name()}@{socket.gethostname()}"


def lock_holder() -> LockHolder:
    """Return the record that names this process as the holder of the hosts' locks."""
    return {
        "user": _user_name(),
        "machine": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.time(),
    }


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
