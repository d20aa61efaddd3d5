"""Run TensorBoard on a host of the run (`tfdeploy tensorboard`).

By default, TensorBoard runs on the host of the deciding task: the task that decides whether the run
has succeeded (usually the chief). TensorBoard reads the run's working directory, including its
`keep` folders (checkpoints). This machine reaches TensorBoard through a tunnel. Its URL contains a
secret path, so other users of the host and of this machine get error 404. TensorBoard ends when
this process ends, even if this process is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tfdeploy.errors import AgentError, HostFailed, Refused, UsageError
from tfdeploy.model.answers.hosts import TENSORBOARD, TensorBoardEnded, TensorBoardStarted
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan
from tfdeploy.operations.fetch import host_of_deciding_task
from tfdeploy.operations.outcomes import session_of
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.transport.protocols import Fleet, Stream

USUAL_PORT = 6006  # the default port of TensorBoard


@dataclass(frozen=True)
class TensorBoard:
    """A running TensorBoard. `url` is its address on this machine."""

    host: str
    url: str
    stream: Stream[TensorBoardStarted, TensorBoardEnded]

    def wait(self) -> None:
        """Wait until TensorBoard ends by itself.

        Raises HostFailed with the last line of its output, or HostUnreachable.
        """
        for _ in self.stream:
            continue
        output = (self.stream.value.said if self.stream.value else "").strip().splitlines()
        raise HostFailed(
            "TensorBoard ended" + (f": {output[-1][:400]}" if output else ""), where=self.host
        )


@contextmanager
def tensorboard(
    fleet: Fleet, plan: Plan, *, host: str | None = None, port: int | None = None
) -> Iterator[TensorBoard]:
    """Run TensorBoard while the context is open.

    `host` names the host of the run on which TensorBoard runs (None: the host of the deciding
    task). `port` is the port on this machine (None: 6006, or any free port if 6006 is taken).

    Raises Refused if TensorBoard is not installed on the host, or if the port is taken. Also raises
    UsageError, HostFailed and HostUnreachable.
    """
    session = session_of(fleet, _choose_host(plan, host))
    # `python` may be "". The host then uses the interpreter that its own copy of the plan names.
    python = plan.host(session.host.name).python
    stream = session.agent().stream(TENSORBOARD, {**plan.run_args, "python": python})
    try:
        board = _wait_until_up(stream, session.host.name)
        tunnel = session.tunnel(board.port, (port,) if port else (USUAL_PORT, 0))
        try:
            yield TensorBoard(
                session.host.name, f"http://127.0.0.1:{tunnel.port}{board.path}/", stream
            )
        finally:
            tunnel.close()
    finally:
        stream.close()


def _choose_host(plan: Plan, requested: str | None) -> Host:
    """Return the host on which TensorBoard runs.

    It is the host `requested` or, if that is None, the host of the task that decides whether the
    run has succeeded. If there is no such task, it is the first host.
    """
    name = requested or host_of_deciding_task(plan) or plan.hosts[0].host
    chosen = next(iter(hosts_of(plan, {name})), None)
    if chosen is None:
        names = ", ".join(plan.host_names[:12])
        raise UsageError(
            f"{name} is no host of {plan.run}", where="--host", next=f"it ran on {names}"
        )
    return chosen


def _wait_until_up(
    stream: Stream[TensorBoardStarted, TensorBoardEnded], host: str
) -> TensorBoardStarted:
    """Wait until TensorBoard is up, and return its address on the host."""
    try:
        for item, _ in stream:
            return item
    except AgentError as error:
        if error.code in ("no_tensorboard", "no_python"):
            raise Refused(error.what, where=error.where, next=error.next) from error
        raise
    raise HostFailed("TensorBoard did not start", where=host)
