"""The seam between operations and SSH: what a session offers. The contract suite holds for every
implementation.

Everything above this floor sees these protocols and `tfdeploy.errors`, never paramiko or fabric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.answers.hosts import Hello
    from tfdeploy.model.answers.verb import Args, Flow, Verb
    from tfdeploy.model.inventory import Host

V = TypeVar("V")
Asked = TypeVar("Asked")
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


@dataclass(frozen=True)
class Completed:
    """One finished command. exit_code None: a signal or the end of the connection ended it (which,
    is not known)."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float


class Stream(Protocol[Item_co, V]):
    """The running answer to one verb: (item, blob) pairs. Ends with the verb; `close` cancels it on
    the host."""

    def __iter__(self) -> Iterator[tuple[Item_co, bytes]]: ...

    # what the verb returned, once the iteration has ended; None before and after a cancel
    value: V | None

    def close(self) -> None: ...


class AgentChannel(Protocol):
    """The one framed channel to the agent of a host. Thread-safe; answers are matched by id."""

    hello: Hello
    clock_skew_s: float
    noise: str  # what the login shell printed before the agent spoke: one line, bounded

    def call(
        self,
        verb: Verb[Asked],
        args: Args | None = None,
        *,
        blob: bytes = b"",
        timeout_s: float = 60.0,
    ) -> Asked:
        """The verb's value. Raises AgentError (the agent said no), BadAnswer (what it said is no
        value of that verb) or HostUnreachable (no answer)."""
        ...

    def stream(
        self, flow: Flow[Item, Asked], args: Args | None = None, *, silence_s: float | None = None
    ) -> Stream[Item, Asked]:
        """Its iteration raises what `call` raises; HostUnreachable also where nothing came for
        `silence_s`."""
        ...

    def hurry(self) -> None:
        """For callers that connect again by themselves: from now on the session ends after 4 s of a
        silent network (not 15 s), or 10 s without an answer of the agent (not 18 s)."""
        ...


Pipes = tuple[int, int, int]  # descriptors: standard input, output and error


class RemoteCommand(Protocol):
    """A command on a host that has begun."""

    def join(self, pipes: Pipes, mark: bytes = b"") -> int:
        """Copy between the command and these descriptors until it ends. Return its exit code; 255:
        the connection was lost. `mark`: drop the output up to it."""
        ...

    def close(self) -> None:
        """End `join`, from any thread."""
        ...


class Tunnel(Protocol):
    """A port here whose connections come out at a port on the host's own loopback. Ends with
    `close` or its session."""

    port: int

    def close(self) -> None: ...


class Session(Protocol):
    """One open SSH connection to a host."""

    host: Host
    target: Any  # transport.ssh.target.Target: rsync gets the same one
    # job -> number of the lock that was taken on this host, also by an earlier session
    fences: dict[str, int]

    @property
    def host_key(self) -> str:
        """The fingerprint of the key by which the host has shown that it is itself:
        "SHA256:..."."""
        ...

    def agent(self) -> AgentChannel:
        """Installs the agent where it is missing, starts `agent serve`, and keeps the channel.
        Raises Refused (no Python 3.8+), HostFailed (disk, permissions), HostUnreachable."""
        ...

    def run(self, argv: tuple[str, ...], *, timeout_s: float | None = None) -> Completed:
        """Run a command without input. One word goes to `sh -c`, several are argv (quoted here,
        once).

        Raises HostFailed (longer than `timeout_s`, too much output), HostUnreachable."""
        ...

    def start(self, line: str) -> RemoteCommand:
        """Start a command line on a channel of its own. Raises HostFailed (sshd opens no further
        channel, MaxSessions), HostUnreachable."""
        ...

    def tunnel(self, port: int, local_ports: tuple[int, ...] = (0,)) -> Tunnel:
        """From the first of `local_ports` of 127.0.0.1 here that is free (0: any) to
        127.0.0.1:`port` there. Raises HostFailed (sshd forwards nothing, nothing listens there),
        Refused (no local port), HostUnreachable."""
        ...

    def close(self) -> None: ...


class Fleet(Protocol):
    """Sessions to many hosts, opened once, in parallel, bounded."""

    on_notice: Callable[[str, str], None]  # gets (host, what it is waited for), in any thread

    def connect(self, hosts: tuple[Host, ...]) -> dict[str, Session | TfdeployError]:
        """One result per host name; every host's outcome is collected."""
        ...

    def each(
        self,
        hosts: tuple[Host, ...],
        action: Callable[[Session], V],
        *,
        on_done: Callable[[str, V | TfdeployError], None] | None = None,
        waits: bool = False,
    ) -> dict[str, V | TfdeployError]:
        """Runs `action` on a session of every host, connecting where needed; one thread per host,
        at most `parallel` at once. With `waits` (the action mostly waits for its host) a slow host
        does not count against `parallel`. Any other error than TfdeployError is raised when all
        hosts were served."""
        ...

    def connected(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        """Those of `hosts` that have a live session now, without opening any."""
        ...

    def close(self) -> None: ...
