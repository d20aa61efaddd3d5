"""exec: one command on many hosts at once, on plain channels. It needs no agent and no Python there."""

from __future__ import annotations

from collections.abc import Callable

from tfdeploy.errors import TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.protocols import Completed, Fleet, Session

Done = Callable[[str, "Completed | TfdeployError"], None]


def execute(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    argv: tuple[str, ...],
    *,
    timeout_s: float | None = None,
    on_done: Done | None = None,
) -> dict[str, Completed | TfdeployError]:
    """Each host's outcome by name, in the order of `hosts`. One word is a script for `sh -c`, several are argv.

    `on_done` is called in the caller's thread, as hosts are done. A command that outlives `timeout_s` is HostFailed.
    """

    def run(session: Session) -> Completed:
        return session.run(argv, timeout_s=timeout_s)

    return fleet.each(hosts, run, on_done=on_done)
