"""Define `Lab`, which both kinds of labs implement, for tests and for the command line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import HostFailed, UsageError
from tfdeploy.lab import folder, processes, starter
from tfdeploy.lab import state as states
from tfdeploy.lab.orders import HostOrder, NetworkOrder, Order
from tfdeploy.lab.state import HostState, LabState

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import LabHostRow


class Lab(ABC):
    """A throw-away cluster on this machine.

    Every method with a parameter for a host's name raises UsageError for an unknown host. Another
    process may change the lab at any time, so each method reads the lab's state again.
    """

    def __init__(self, root: Path, state: LabState) -> None:
        self.root = root
        self.state = state
        self.name = state.name
        self.kind = state.kind
        self.inventory = root / folder.INVENTORY
        self.known_hosts = root / folder.KNOWN_HOSTS
        self.hosts = tuple(host.name for host in state.hosts)

    @abstractmethod
    def operator_command(self, argv: Sequence[str]) -> list[str]:
        """Return a command line that runs `argv` as the operator.

        In an isolated lab, the operator has a network that reaches only the hosts.
        """

    def cut(self, host: str) -> None:
        """Disconnect the host from the network until `heal`. Raises UsageError for a loopback
        lab."""
        self._set_disconnected(host, True)

    def heal(self, host: str) -> None:
        self._set_disconnected(host, False)

    def kill(self, host: str) -> None:
        """Power the host off at once. No packet informs its peers. Keep its disk."""
        with self.locked_host_state(host) as host_state:
            self._power_off(host_state)
            host_state.process = None

    def boot(self, host: str) -> None:
        """Power the host on, with the same disk, address and keys.

        A host that is already on stays unchanged.
        """
        with self.locked_host_state(host) as host_state:
            if self.state_of(host_state) == "off":
                self._start([host_state])

    def down(self) -> None:
        """Remove every process, namespace, mount and file of the lab."""
        with folder.hold_lab_lock(self.root):
            self.read_state_again()
            self._end_processes()
            aside = folder.rename_for_removal(self.root)
        folder.delete_renamed_lab_and_leftovers(aside)

    def status(self) -> list[LabHostRow]:
        """Return one row for each host."""
        self.read_state_again()
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

    @abstractmethod
    def write_files(self) -> None:
        """Write all files of the lab. A second call keeps the keys and the hosts' homes."""

    @abstractmethod
    def start_hosts(self) -> None:
        """Start every host that does not run."""

    @abstractmethod
    def state_of(self, host: HostState) -> str: ...

    @abstractmethod
    def _start(self, hosts: list[HostState]) -> None: ...

    @abstractmethod
    def _power_off(self, host: HostState) -> None: ...

    @abstractmethod
    def _end_processes(self) -> None:
        """End all processes of the lab."""

    @abstractmethod
    def _set_disconnected(self, name: str, cut: bool) -> None:
        """Set the host's link down (`cut`) or up, and record that in the lab's state."""

    def _bring_up(
        self,
        hosts: list[HostOrder],
        networks: dict[str, NetworkOrder] | None = None,
        switch_pid: int | None = None,
    ) -> None:
        """Start hosts and networks, and record their first processes in the lab's state.

        The processes that did start are recorded even if others did not. Then HostFailed is raised
        for the first host or network that did not start. The error quotes the end of console.log of
        a host; a network has none.
        """
        order: Order = {
            "root": str(self.root),
            "networks": networks or {},
            "switch": switch_pid,
            "hosts": hosts,
        }
        outcome = starter.start_ordered_processes(order)
        hosts_by_name = {host.name: host for host in self.state.hosts}
        for name, pid in outcome["pids"].items():
            process = processes.identify(pid)
            if name in hosts_by_name:
                hosts_by_name[name].process = process
            elif process:
                self.state.networks[name] = process
        states.save(self.root, self.state)
        for name, reason in outcome["errors"].items():
            raise HostFailed(
                f"{name} did not start: {reason}",
                where=str(self.root),
                next=self.read_sshd_output_tail(name) or None,
            )

    def _end_unrecorded_processes(self) -> None:
        """End first processes of hosts and networks that the lab's state does not record.

        Such processes exist if `lab up` was killed before it had saved the state.
        """
        recorded = self._live_first_pids()

        def find_strays() -> set[int]:
            first = processes.find_marked(str(self.root), include_nested=False) - recorded
            return processes.with_descendants(first) - recorded

        processes.end_all(find_strays)

    def read_sshd_output_tail(self, host: str) -> str:
        """Return the last 800 characters that the host's sshd has printed, or "" if none."""
        try:
            console = folder.host_folder(self.root, host) / "console.log"
            return console.read_text(errors="replace")[-800:].strip()
        except OSError:
            return ""

    def _live_first_pids(self) -> set[int]:
        """Return the pids of the live first processes of the hosts and networks."""
        first_processes = (
            *self.state.networks.values(),
            *(host.process for host in self.state.hosts),
        )
        return {
            process.pid for process in first_processes if process and processes.is_alive(process)
        }

    def read_state_again(self) -> None:
        """Read the lab's state from its folder, because another process may have changed it."""
        self.state = states.read(self.root) or self.state

    def host(self, name: str) -> HostState:
        """Return the current state of the host, read from the lab's folder.

        Raises UsageError for an unknown host.
        """
        self.read_state_again()
        for host in self.state.hosts:
            if host.name == name:
                return host
        what = f"no host {name!r} in the lab {self.name}"
        known = f"one of: {', '.join(self.hosts)}"
        raise UsageError(what, where=f"lab {self.name}", next=known)

    def folder_of(self, host: HostState) -> Path:
        return folder.host_folder(self.root, host.name)

    @contextmanager
    def locked_host_state(self, name: str) -> Iterator[HostState]:
        """Yield the host's state while no other lab command runs, and save the state at the end."""
        with folder.hold_lab_lock(self.root):
            yield self.host(name)
            states.save(self.root, self.state)
