"""The dashboard of a run, on the whole terminal: what it shows at first, what it follows, and the
verbs that it can do."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.state import run_store
from tfdeploy.errors import TfdeployError
from tfdeploy.machine.own_command import own_command
from tfdeploy.model.status.run_status import exit_code
from tfdeploy.operations.emit import notices_to
from tfdeploy.operations.samples import samples
from tfdeploy.operations.watch.follow import follow
from tfdeploy.ui.dashboard.dashboard import Dashboard

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.model.events import Emit, Event
    from tfdeploy.model.loglines import LogLine
    from tfdeploy.model.plan import Plan
    from tfdeploy.transport.protocols import Fleet

# events of the past that are shown; what the run's state is, its hosts say
_TOLD = ("task", "host", "note")


class Beginning:
    """The dashboard of a launch, from its step `start` on. Before, and after `q`, `show` gets the
    events."""

    def __init__(self, flags: CommonFlags, run: str, show: Emit) -> None:
        self.flags, self.run, self.show = flags, run, show
        self.board: Dashboard | None = None
        self._stack = ExitStack()
        self._told: list[Event] = []  # before the dashboard, then beside it

    def __enter__(self) -> Beginning:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if kind is not None and self.board is not None:
            for event in self._told:
                self.show(event)

    @property
    def left(self) -> bool:
        """Whether `q` was typed: the launch goes on, and nothing more is to be shown after it."""
        return self.board is not None and self.board.view.quit

    def __call__(self, event: Event) -> None:
        if self.board is None:
            self.show(event)
            self._told.append(event)
            if event.kind == "step" and (event.data["step"], event.data["state"]) == (
                "start",
                "begin",
            ):
                self._open()
            return
        self.board(event)
        (self.show if self.left else self._told.append)(event)

    def _open(self) -> None:
        print(self.run, flush=True)
        self.board = Dashboard(typed=self.flags.typed)
        for event in self._told:
            self.board(event)
        self._told.clear()
        self._stack.enter_context(self.board.drawn_beside())


def dashboard(
    flags: CommonFlags,
    fleet: Fleet,
    plan: Plan,
    *,
    record: Emit | None = None,
    record_lines: Callable[[list[LogLine]], None] | None = None,
    last: int | None = None,
    only: frozenset[str] | None = None,
    before: Dashboard | None = None,
) -> int:
    """The run on the whole terminal, or what `only` these hosts have of it. `before`: that of its
    launch.

    `record` gets all events, `record_lines` the tasks' lines. Returns the exit code: 0 when `q`
    leaves, at the run's end the run's own.
    """
    shown = plan if only is None else _part_of(plan, only)
    board = Dashboard(shown, typed=flags.typed, command=lambda words: _do(flags, words))
    if before is not None:
        board.view.go_on_from(before.view)
    _tell_past(board, shown)
    stop = threading.Event()
    seen: dict[str, Any] = {}

    def both(event: Event) -> None:
        board(event)
        if record is not None:
            record(event)

    fleet.on_notice = notices_to(both)

    def take_lines(batch: list[LogLine]) -> None:
        board.take_lines(batch)
        if record_lines is not None:
            record_lines(batch)

    def watch() -> None:
        try:
            seen["view"] = follow(
                fleet, plan, both, stop=stop, take_lines=take_lines, last=last, only=only
            )
        except Exception as error:  # noqa: BLE001 - shown by the thread that owns the terminal
            seen["error"] = error
            board.close()

    thread = threading.Thread(target=watch, name="follow", daemon=True)
    thread.start()
    if before is None:
        threading.Thread(
            target=_ask_samples, args=(board, fleet, plan, only), name="samples", daemon=True
        ).start()
    try:
        quit_early = board.run() == "left"
    finally:
        stop.set()
    thread.join(5)
    if "error" in seen:
        raise seen["error"]
    return 0 if quit_early or "view" not in seen else exit_code(seen["view"])


def _do(flags: CommonFlags, words: Sequence[str]) -> None:
    """A verb of tfdeploy on this terminal, with the files of this command line."""
    given = [("-i", flags.inventory), ("-j", flags.job)]
    files = [word for flag, value in given if value for word in (flag, str(value))]
    command = own_command([words[0], *files, *words[1:]])
    subprocess.run(command, check=False)  # it says itself what went wrong


def _tell_past(board: Dashboard, plan: Plan) -> None:
    """What this machine has recorded of the run, so that its attempts and its first death are
    known."""
    hosts = {host.host for host in plan.hosts}
    for event in run_store().events(plan.run):
        if event.kind in _TOLD and (event.host is None or event.host in hosts):
            board(event)


def _ask_samples(board: Dashboard, fleet: Fleet, plan: Plan, only: frozenset[str] | None) -> None:
    try:
        board.begin_with(samples(fleet, plan, only))
    except TfdeployError:
        return  # the curves begin now


def _part_of(plan: Plan, only: frozenset[str]) -> Plan:
    """The plan with only these hosts and their tasks, for showing."""
    hosts = tuple(host for host in plan.hosts if host.host in only)
    return replace(plan, hosts=hosts, tasks=tuple(task for task in plan.tasks if task.host in only))
