"""The sessions to the hosts, and the operator in whose name they are opened."""

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


def begin_dialling(hosts: Iterable[Host]) -> None:
    """Before the modules that connect are imported, which takes as long as some hosts take to
    answer."""
    from tfdeploy.transport.ssh import early

    early.begin(hosts)


@contextmanager
def open_fleet(flags: CommonFlags, bwlimit: int | None = None) -> Iterator[SshFleet]:
    from tfdeploy.transport.fleet import SshFleet

    fleet = SshFleet(
        parallel=flags.parallel,
        operator=operator_name(),
        bwlimit=bwlimit,
        on_notice=show_notice,
    )
    try:
        yield fleet
    finally:
        fleet.close()


def show_notice(host: str, text: str) -> None:
    """Says on stderr what a host is waited for, where no view of a verb shows it."""
    print(f"[{host}] {text}", file=sys.stderr, flush=True)


def operator_name() -> str:
    """user@machine, for audits and for `tfdeploy runs`."""
    return f"{_user_name()}@{socket.gethostname()}"


def lock_holder() -> LockHolder:
    """Who holds the hosts' locks from now on."""
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
