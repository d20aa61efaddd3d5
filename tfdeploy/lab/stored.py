"""What both kinds of lab share: a folder, a state that another process may have changed, and a lock for changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfdeploy.errors import UsageError
from tfdeploy.lab import folder, starter
from tfdeploy.lab import state as states
from tfdeploy.lab.protocol import HostStatus
from tfdeploy.lab.state import HostState, LabState


class StoredLab:
    """A lab that is (or shall be) in its folder."""

    def __init__(self, root: Path, state: LabState) -> None:
        self.root = root
        self.state = state
        self.name = state.name
        self.kind = state.kind
        self.inventory = root / folder.INVENTORY
        self.known_hosts = root / folder.KNOWN_HOSTS
        self.hosts = tuple(host.name for host in state.hosts)

    def console(self, host: str) -> str:
        return starter.console_tail(self.root, self.host(host).name)

    def status(self) -> list[HostStatus]:
        self.reread()
        return [
            {
                "host": host.name,
                "address": host.address,
                "port": host.port,
                "state": self.state_of(host),
                "pid": host.process.pid if host.process else None,
                "python": self.state.python,
            }
            for host in self.state.hosts
        ]

    def state_of(self, host: HostState) -> str:
        raise NotImplementedError

    def reread(self) -> None:
        self.state = states.read(self.root) or self.state

    def host(self, name: str) -> HostState:
        """As the folder has it now. Raises UsageError."""
        self.reread()
        for host in self.state.hosts:
            if host.name == name:
                return host
        raise UsageError(
            f"no host {name!r} in the lab {self.name}", where=f"lab {self.name}", next=f"one of: {', '.join(self.hosts)}"
        )

    def folder_of(self, host: HostState) -> Path:
        return folder.host_folder(self.root, host.name)

    @contextmanager
    def changing(self, name: str) -> Iterator[HostState]:
        """The host, while no other lab command runs; its changes are saved at the end."""
        with folder.locked(self.root):
            yield self.host(name)
            states.save(self.root, self.state)
