"""exec: one command on many hosts at once, on plain SSH channels. The hosts need no agent and no Python."""

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
    """Each host's outcome by name, in the order of `hosts`. One element of `argv` is a script for `sh -c`.

    `on_done` is called in the caller's thread when a host is done. A command that runs longer than `timeout_s` is HostFailed.
    """

    def run(session: Session) -> Completed:
        return session.run(argv, timeout_s=timeout_s)

    return fleet.each(hosts, run, on_done=on_done)
