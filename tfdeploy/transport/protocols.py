"""Define the interfaces between tfdeploy's operations and SSH.

The contract tests check every implementation. The operations use these protocols and
`tfdeploy.errors`, and never import paramiko or fabric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tfdeploy.errors import TfdeployError

if TYPE_CHECKING:
    from tfdeploy.model.answers.hosts import Hello
    from tfdeploy.model.inventory import Host, Hosts
    from tfdeploy.text.typed import Args, StreamingVerb, Verb

V = TypeVar("V")
Asked = TypeVar("Asked")
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
Errors = dict[str, TfdeployError]  # {host name: its error}
Outcomes = dict[str, V | TfdeployError]  # {host name: the host's value, or its error}
# Called with (host name, the host's value or error).
OnDone = Callable[[str, V | TfdeployError], None]


@dataclass(frozen=True)
class Completed:
    """The result of a command that has ended.

    `exit_code` is None if a signal ended the command or the connection was lost.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float


class Stream(Protocol[Item_co, V]):
    """The answer to one verb, while it arrives. Iterate over it to get (item, blob) pairs.

    The iteration ends when the verb returns. `close` cancels the verb on the host.
    """

    def __iter__(self) -> Iterator[tuple[Item_co, bytes]]: ...

    # The value that the verb returned. It is None before the end of the iteration, and if the verb
    # was cancelled.
    value: V | None

    def close(self) -> None: ...


class AgentChannel(Protocol):
    """The channel to the agent of one host, which calls verbs of the agent. Thread-safe."""

    hello: Hello
    clock_skew_s: float
    noise: str  # what the login shell printed before the agent started, shortened to one line

    def call(
        self,
        verb: Verb[Asked],
        args: Args | None = None,
        *,
        blob: bytes = b"",
        timeout_s: float = 60.0,
    ) -> Asked:
        """Call a verb and return its value.

        Raises AgentError (the agent reported an error), BadAnswer (the answer is not a value of
        this verb) or HostUnreachable (no answer).
        """

    def stream(
        self,
        flow: StreamingVerb[Item, Asked],
        args: Args | None = None,
        *,
        silence_s: float | None = None,
    ) -> Stream[Item, Asked]:
        """Call a verb whose answer is a stream of items.

        The iteration over the stream raises the errors of `call`, and HostUnreachable if nothing
        came for `silence_s` seconds.
        """

    def shorten_timeouts(self) -> None:
        """Detect a lost connection sooner. For callers that reconnect by themselves.

        From now on the session ends if the network is silent for 4 s (otherwise 15 s), or if the
        agent answers nothing for 10 s (otherwise 18 s).
        """


Pipes = tuple[int, int, int]  # file descriptors: standard input, output and error


class RemoteCommand(Protocol):
    """A command that has been started on a host."""

    def relay_until_end(self, pipes: Pipes, drop_up_to: bytes = b"") -> int:
        """Copy bytes between the command and the local descriptors `pipes` until the command ends.

        Return the exit code, or 255 if the connection was lost. `drop_up_to`: a mark; the command's
        output is dropped up to the end of this mark.
        """

    def close(self) -> None:
        """Make `relay_until_end` return. Any thread may call this."""


class Tunnel(Protocol):
    """A port of this machine from which connections are forwarded to a port of the host's loopback.

    The tunnel ends with `close` or with its session.
    """

    port: int

    def close(self) -> None: ...


class Session(Protocol):
    """One open SSH connection to a host."""

    host: Host
    target: Any  # the transport.ssh.target.Target of the host, which rsync uses too
    # {job: number of the lock acquired on this host, by this session or an earlier one}
    fences: dict[str, int]

    def agent(self, on_missing: Callable[[], object] = lambda: None) -> AgentChannel:
        """Return the channel to the agent. The first call installs and starts the agent.

        `on_missing`: called if the host lacks the agent, before it is installed.

        Raises Refused (no Python 3.8+), HostFailed (disk, permissions), HostUnreachable.
        """

    def run(self, argv: tuple[str, ...], *, timeout_s: float | None = None) -> Completed:
        """Run a command without input.

        `argv`: several words are the command and its arguments, which are quoted; one word is a
        script for `sh -c`. Raises HostFailed (longer than `timeout_s`, too much output),
        HostUnreachable.
        """

    def start(self, line: str) -> RemoteCommand:
        """Start a command line on an SSH channel of its own.

        Raises HostFailed (sshd opens no further channel: MaxSessions), HostUnreachable.
        """

    def tunnel(self, port: int, local_ports: tuple[int, ...] = (0,)) -> Tunnel:
        """Forward a port of this machine to `port` of the host, both on 127.0.0.1.

        The first free one of `local_ports` is used; 0 stands for any free port. Raises HostFailed
        (sshd does not allow forwarding, nothing listens on the host), Refused (no free local port),
        HostUnreachable.
        """

    def close(self) -> None: ...


class Fleet(Protocol):
    """The sessions to many hosts.

    There is at most one session for each host. The setting `parallel` limits how many sessions are
    used at the same time.
    """

    # Called with (host, why tfdeploy retries the host), in any thread.
    on_notice: Callable[[str, str], None]

    def connect(self, hosts: Hosts) -> Outcomes[Session]:
        """Open a session to every host. Return {host name: session or error}."""

    def each(
        self,
        hosts: Hosts,
        action: Callable[[Session], V],
        *,
        on_done: OnDone[V] | None = None,
        waits: bool = False,
    ) -> Outcomes[V]:
        """Run `action` on the session of every host. Sessions that are not open are opened.

        At most `parallel` hosts are served at once. `waits`: True if the action mostly waits for
        its host; a slow host then does not count against `parallel`. An error that is not a
        TfdeployError is raised after the actions on all hosts have ended.
        """

    def connected(self, hosts: Hosts) -> Hosts:
        """Return those of the hosts whose session is open now. No session is opened."""

    def close(self) -> None: ...
