"""Show the dashboard of a run on the whole terminal, and follow the run."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.cli.state import open_run_store
from tfdeploy.errors import TfdeployError
from tfdeploy.machine.own_command import own_command
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.status.run_status import exit_code
from tfdeploy.operations.emit import make_wait_warner
from tfdeploy.operations.samples import read_samples
from tfdeploy.operations.watch.follow import follow
from tfdeploy.ui.dashboard.dashboard import Dashboard

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.model.events import Emit, Event
    from tfdeploy.model.loglines import LogLine
    from tfdeploy.model.plan import Plan
    from tfdeploy.model.status.run_status import RunView
    from tfdeploy.transport.protocols import Fleet

# The dashboard shows recorded events of these kinds. Everything else about the run comes from the
# hosts.
_REPLAYED_KINDS = ("task", "host", "note")


class LaunchDashboard:
    """The dashboard of a launch, which opens when the launch begins its step `start`.

    `show`: a function that prints an event as text. It prints the events before the dashboard opens
    and the events after the operator closed the dashboard with `q`.
    """

    def __init__(self, flags: CommonFlags, run: str, show: Emit) -> None:
        self.flags, self.run, self.show = flags, run, show
        self.board: Dashboard | None = None
        self._stack = ExitStack()
        # Before the dashboard opens, this list contains the events that `show` has printed, and the
        # dashboard then shows them again. While the dashboard is open, the list contains the events
        # that the dashboard shows. If the launch fails, `show` prints those.
        self._events: list[Event] = []

    def __enter__(self) -> LaunchDashboard:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stack.close()
        if kind is not None and self.board is not None:
            for event in self._events:
                self.show(event)

    @property
    def has_quit(self) -> bool:
        """Return True if `q` was typed. The launch then continues without the dashboard."""
        return self.board is not None and self.board.view.quit

    def __call__(self, event: Event) -> None:
        if self.board is None:
            self.show(event)
            self._events.append(event)
            if event.kind == "step" and dict(event.data) == {"step": "start", "state": "begin"}:
                self._open()
            return
        self.board(event)
        (self.show if self.has_quit else self._events.append)(event)

    def _open(self) -> None:
        print(self.run, flush=True)
        self.board = Dashboard(add_options=self.flags.add_file_flags)
        for event in self._events:
            self.board(event)
        self._events.clear()
        self._stack.enter_context(self.board.draw_in_thread())


def show_dashboard(
    flags: CommonFlags,
    fleet: Fleet,
    plan: Plan,
    *,
    record: Emit | None = None,
    record_lines: Callable[[list[LogLine]], None] | None = None,
    last_lines: int | None = None,
    only_hosts: frozenset[str] | None = None,
    launch_board: Dashboard | None = None,
) -> int:
    """Show the run, or its tasks on `only_hosts`, on the whole terminal until the run ends.

    `record`: a function that gets all events. `record_lines`: a function that gets the lines of the
    tasks.
    `last_lines`: how many earlier lines of each task are shown.
    `launch_board`: the dashboard that was open during the launch. The new dashboard keeps the
    choices that the operator made there.

    Returns the exit code of the run, or 0 if the operator left with `q`.
    """
    shown_plan = plan if only_hosts is None else _restrict_plan(plan, only_hosts)
    board = Dashboard(
        shown_plan, add_options=flags.add_file_flags, command=lambda argv: _run_verb(flags, argv)
    )
    if launch_board is not None:
        board.view.copy_choices(launch_board.view)
    else:
        board.happenings.mark_running(plan.run)
    _show_recorded_events(board, shown_plan)
    stop = threading.Event()
    views: list[RunView] = []
    errors: list[Exception] = []

    def emit(event: Event) -> None:
        board(event)
        if record is not None:
            record(event)

    fleet.on_notice = make_wait_warner(emit)

    def take_lines(batch: list[LogLine]) -> None:
        board.take_lines(batch)
        if record_lines is not None:
            record_lines(batch)

    def watch() -> None:
        try:
            view = follow(
                fleet,
                plan,
                emit,
                stop=stop,
                take_lines=take_lines,
                last=last_lines,
                only_hosts=only_hosts,
            )
            views.append(view)
        except Exception as error:  # noqa: BLE001 - the main thread raises the error again
            errors.append(error)
            board.close()

    def load_samples() -> None:
        # If the hosts do not answer, the curves have only new samples.
        with suppress(TfdeployError):
            board.add_past_samples(read_samples(fleet, plan, only_hosts))

    thread = start_thread(watch, name="follow")
    if launch_board is None:
        start_thread(load_samples, name="samples")
    try:
        quit_early = board.run() == "left"
    finally:
        stop.set()
    thread.join(5)
    if errors:
        raise errors[0]
    return 0 if quit_early or not views else exit_code(views[0])


def _run_verb(flags: CommonFlags, argv: Sequence[str]) -> None:
    """Run another verb of tfdeploy on this terminal, with the same -i and -j as this command."""
    file_flags = [("-i", flags.inventory), ("-j", flags.job)]
    files = [word for flag, value in file_flags if value for word in (flag, str(value))]
    command = own_command([argv[0], *files, *argv[1:]])
    # The exit code is not checked, because the verb prints its own errors.
    subprocess.run(command, check=False)


def _show_recorded_events(board: Dashboard, plan: Plan) -> None:
    """Show events that this machine has recorded, such as earlier attempts and deaths of tasks."""
    hosts = {None, *plan.host_names}
    for event in open_run_store().events(plan.run):
        if event.kind in _REPLAYED_KINDS and event.host in hosts:
            board(event)


def _restrict_plan(plan: Plan, only_hosts: frozenset[str]) -> Plan:
    """Return the plan with only the hosts in `only_hosts` and the tasks on them."""
    hosts = tuple(host for host in plan.hosts if host.host in only_hosts)
    return replace(
        plan, hosts=hosts, tasks=tuple(task for task in plan.tasks if task.host in only_hosts)
    )
