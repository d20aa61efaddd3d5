"""Launch runs and follow them from Python: docs/api.md describes this API, with an example.

Each function or method does what the verb of the same name does, takes the verb's flags as
keywords, and returns what the verb prints with --json. Durations, sizes and times are numbers
(seconds, bytes, UTC seconds) or texts as on the command line. Any thread may call any of them.

Only `Run.watch` prints. Messages and the steps of a launch go to the logger "tfdeploy". Every error
that a user can cause is a `tfdeploy.errors.TfdeployError`: `what` happened, `where`, and what to
type `next`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfdeploy.cli.arguments import fetch as fetch_flags
from tfdeploy.cli.arguments import launch as launch_flags
from tfdeploy.cli.arguments import logs as logs_flags
from tfdeploy.cli.arguments import stop as stop_flags
from tfdeploy.cli.chosen_run import LookupScope, choose_run
from tfdeploy.cli.flags import CommonFlags, OneRunFlags
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.options import moment, unknown_choice_error
from tfdeploy.cli.output import message_sink
from tfdeploy.cli.project import load_job, load_job_if_any, load_whole_inventory
from tfdeploy.cli.state import open_run_store
from tfdeploy.cli.verbs.fetch import fetch_to_folder
from tfdeploy.cli.verbs.launch import make_launch_request
from tfdeploy.cli.verbs.logs import limit_query_to_attempts, make_query_without_tasks, select_tasks
from tfdeploy.cli.verbs.status import exit_code_if_unreachable
from tfdeploy.cli.verbs.stop import choose_grace_s, make_rows, stop_as_json
from tfdeploy.errors import RunFailed, SurvivorsLeft, TfdeployError, UsageError
from tfdeploy.model import inventory as inventory_values
from tfdeploy.model import job as job_values
from tfdeploy.model.loglines import lines_of
from tfdeploy.model.plan import plan_to_json
from tfdeploy.model.status.run_status import exit_code, run_view_json
from tfdeploy.operations.emit import make_wait_warner
from tfdeploy.operations.launch import launch as launch_run
from tfdeploy.operations.launch import probe_and_plan
from tfdeploy.operations.logs import follow_lines
from tfdeploy.operations.outcomes import combine_errors, split_outcomes
from tfdeploy.operations.status import status as ask_status
from tfdeploy.operations.stop import stop as stop_run
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.tasklogs.stored_lines import stored_batches
from tfdeploy.operations.watch.follow import follow as follow_run
from tfdeploy.text.row_values import iso_z
from tfdeploy.ui.plain import PlainView
from tfdeploy.ui.terminal import Terminal

if TYPE_CHECKING:
    from tfdeploy.model.events import Emit
    from tfdeploy.model.job import Mode, Via
    from tfdeploy.model.loglines import LogLine
    from tfdeploy.model.output.printed import FetchAnswer, StopAnswer
    from tfdeploy.model.output.rows import LogLineRow
    from tfdeploy.model.plan import Plan
    from tfdeploy.model.status.run_status import RunAnswer
    from tfdeploy.operations.launch import LaunchRequest
    from tfdeploy.operations.status import Status
    from tfdeploy.transport.fleet import SshFleet

    File = str | os.PathLike[str]

F = TypeVar("F", bound=CommonFlags)
_LOG = logging.getLogger("tfdeploy")
# Without a handler, the logging module would print warnings on stderr.
_LOG.addHandler(logging.NullHandler())
# A launch holds this lock, so that the launches of one process run one after the other. Two at once
# could choose the same port of a host, because each would still find the port free.
_launching = threading.Lock()


@contextmanager
def _log_printed_messages() -> Iterator[None]:
    """Within the `with` block, log messages that tfdeploy would print on a command line."""
    token = message_sink.set(_LOG.warning)
    try:
        yield
    finally:
        message_sink.reset(token)


class _LogTerminal(Terminal):
    """A terminal for PlainView whose `write` logs the text at level INFO instead of printing it."""

    def write(self, text: str) -> None:
        _LOG.info("%s", text.rstrip("\n"))


class Inventory(inventory_values.Inventory):
    """The hosts of an inventory, and their roles. `Inventory.load` reads a file."""

    @classmethod
    @_log_printed_messages()
    def load(cls, inventory: File | None = None) -> Inventory:
        """Return the inventory of the file `inventory`, as a command with `-i` reads it.

        If `inventory` is None, return the inventory that a command without `-i` finds. Raises
        ConfigError, and Refused if another user can change the file.
        """
        flags = _make_flags(CommonFlags, {"inventory": inventory})
        return cls(**vars(load_whole_inventory(flags, load_job_if_any(flags))))


class Job(job_values.Job):
    """What to train. `Job.load` reads a job file; `dataclasses.replace` makes a variant."""

    @classmethod
    @_log_printed_messages()
    def load(cls, job: File | None = None) -> Job:
        """Return the job of the file `job`, as a command with `-j` reads it.

        If `job` is None, return the job that a command without `-j` finds. Raises ConfigError, and
        Refused if another user can change the file.
        """
        return cls(**vars(load_job(_make_flags(CommonFlags, {"job": job}))))


@_log_printed_messages()
def plan(
    job: Job | File | None = None,
    *,
    inventory: Inventory | File | None = None,
    command: Sequence[str] | None = None,
    mode: Mode | None = None,
    ps: int | None = None,
    workers: int | None = None,
    name: str | None = None,
    sync: bool = True,
    fresh: bool = False,
    ignore_keep: bool = False,
    allow_public: bool = False,
    allow_open: bool = False,
    force: bool = False,
    bwlimit: int | str | None = None,
    via: Via | None = None,
    allow_secrets_in_code: bool = False,
    limit: str | None = None,
    exclude: str | None = None,
    parallel: int = 32,
    yes: bool = False,
) -> dict[str, Any]:
    """Return the plan of `launch` with these arguments: docs/reference-plan.md describes it.

    Asks the hosts and sends nothing. Raises TfdeployError as `launch` does.
    """
    flags, request = _make_launch_request({**locals(), "dry_run": True})
    with open_fleet(flags, flags.bwlimit) as fleet:
        return plan_to_json(probe_and_plan(request, fleet, _make_event_logger(fleet)))


@_log_printed_messages()
def launch(
    job: Job | File | None = None,
    *,
    inventory: Inventory | File | None = None,
    command: Sequence[str] | None = None,
    mode: Mode | None = None,
    ps: int | None = None,
    workers: int | None = None,
    name: str | None = None,
    sync: bool = True,
    fresh: bool = False,
    ignore_keep: bool = False,
    allow_public: bool = False,
    allow_open: bool = False,
    force: bool = False,
    bwlimit: int | str | None = None,
    via: Via | None = None,
    allow_secrets_in_code: bool = False,
    limit: str | None = None,
    exclude: str | None = None,
    parallel: int = 32,
    yes: bool = False,
) -> Run:
    """Start a run on all its hosts, and return it once all its tasks are up.

    `job`, `inventory`: the path of a file, or the value that `load` returned. If None, the file is
    searched for as on the command line. `command`: a command to run in place of the job's. Before
    TfdeployError or KeyboardInterrupt is raised, everything that was started is stopped.
    """
    flags, request = _make_launch_request(locals())
    store = open_run_store()
    with ExitStack() as stack, closing(store.event_recorder(request.run)) as record:
        fleet = stack.enter_context(open_fleet(flags, flags.bwlimit))
        log = _make_event_logger(fleet)

        def emit(event: Any) -> None:
            log(event)
            record(event)

        run = Run.__new__(Run)
        with _launching:
            started = launch_run(request, fleet, store, emit)
        run._set_up(flags, started, request.inventory, fleet, stack)
    return run


class Run:
    """A run, launched here or elsewhere.

    The object keeps its connections to the hosts until its `with` block ends or nothing refers to
    the object. The tasks on the hosts need neither the object nor its connections. A notebook shows
    the object as a table of its tasks.
    """

    name: str

    @_log_printed_messages()
    def __init__(
        self,
        name: str | None = None,
        *,
        job: Job | File | None = None,
        inventory: Inventory | File | None = None,
        parallel: int = 32,
    ) -> None:
        """Find an earlier run by its id or a unique prefix of the id.

        If `name` is None, find the newest run of the job. Raises UsageError if the run is unknown,
        and HostUnreachable.
        """
        flags = _make_flags(OneRunFlags, {**locals(), "run_prefix": name})
        scope = None
        if isinstance(job, Job) or isinstance(inventory, Inventory):
            known = job if isinstance(job, Job) else load_job_if_any(flags)
            hosts = isinstance(inventory, Inventory) and inventory
            scope = LookupScope(flags, hosts or load_whole_inventory(flags, known), known)
        with ExitStack() as stack:
            fleet = stack.enter_context(open_fleet(flags))
            _make_event_logger(fleet)
            plan = choose_run(flags, fleet, scope=scope).plan
            self._set_up(flags, plan, scope.inventory if scope else None, fleet, stack)

    def _set_up(
        self,
        flags: CommonFlags,
        plan: Plan,
        inventory: inventory_values.Inventory | None,
        fleet: SshFleet,
        connections: ExitStack,
    ) -> None:
        self.name, self._plan, self._fleet = plan.run, plan, fleet
        self._parallel = flags.parallel
        self._inventory = inventory or inventory_values.Inventory(())
        self._close = weakref.finalize(self, connections.pop_all().close)

    def __repr__(self) -> str:
        return f"Run({self.name!r})"

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections. The run goes on."""
        self._close()

    @_log_printed_messages()
    def status(self, *, limit: str | None = None, exclude: str | None = None) -> RunAnswer:
        """Return the run's state and tasks. Raises HostUnreachable if no host answers."""
        return run_view_json(self._ask_status(_make_flags(CommonFlags, locals())).view)

    @_log_printed_messages()
    def logs(
        self,
        *,
        follow: bool = False,
        lines: int | str | None = None,
        since: float | str | None = None,
        until: float | str | None = None,
        task: str | Sequence[str] | None = None,
        host: str | Sequence[str] | None = None,
        grep: str | Sequence[str] | None = None,
        exclude_grep: str | Sequence[str] | None = None,
        errors: bool = False,
        ignore_case: bool = False,
        context: int = 0,
        attempt: int | None = None,
        previous: bool = False,
        stderr: bool = False,
        limit: str | None = None,
        exclude: str | None = None,
    ) -> Iterator[LogLineRow]:
        """Return the selected lines of all tasks, sorted by time.

        `follow`: True to wait for new lines until all tasks have ended. A line of more than 1 MiB
        is split. The call raises UsageError for wrong arguments. If a host does not answer, the
        iterator yields the lines of the other hosts, and then raises the error of this host.
        """
        flags = _make_flags(logs_flags.Flags, locals())
        failed: dict[str, TfdeployError] = {}
        only = self._select_hosts(flags)
        query = make_query_without_tasks(flags)
        query = replace(query, tasks=select_tasks(flags, self._plan, only))
        query, follow = limit_query_to_attempts(flags, self._fleet, self._plan, query, failed)
        if follow:
            selected = follow_lines(self._fleet, self._plan, query, failed, {})
        else:
            fetched = FetchedLogs(Path("fetched") / self.name / "logs")
            batches = stored_batches(self._fleet, self._plan, query, failed, {}, fetched)
            selected = (line for batch in batches for line in lines_of(batch))
        return self._make_rows(selected, failed)

    def _make_rows(
        self, lines: Iterator[LogLine], errors: Mapping[str, TfdeployError]
    ) -> Iterator[LogLineRow]:
        for each in lines:
            yield {
                "time": iso_z(each.time) or "",
                "run": self.name,
                "task": each.task,
                "host": each.host,
                "attempt": each.attempt,
                "stream": "err" if each.stream == "err" else "out",
                "line": each.line.decode("utf-8", "replace"),
            }
        self._raise_if_errors("reading logs", errors)

    @_log_printed_messages()
    def wait(self, timeout: float | None = None) -> RunAnswer:
        """Wait until the run ends, or for `timeout` seconds, and return its state and tasks.

        Raises RunFailed if the run has failed or was stopped. Ctrl-C ends only the wait.
        """
        stop = threading.Event()
        timer = threading.Timer(timeout or 0, stop.set)
        timer.daemon = True
        if timeout is not None:
            timer.start()
        try:
            view = follow_run(self._fleet, self._plan, _make_event_logger(self._fleet), stop=stop)
        finally:
            stop.set()
            timer.cancel()
        if exit_code(view):
            raise RunFailed(
                view.cause or f"the run is {view.state}",
                where=view.first_death or self.name,
                next=f"`tfdeploy logs {self.name}`",
            )
        return self.status()

    @_log_printed_messages()
    def stop(self, *, grace: float | str | None = None, now: bool = False) -> StopAnswer:
        """Stop the run: send SIGTERM, and SIGKILL after `grace`. `now`: the same as `grace=0`.

        Raises SurvivorsLeft if processes are left, and the error of hosts that did not answer.
        """
        flags = _make_flags(stop_flags.Flags, locals())
        results = stop_run(self._fleet, self._plan, grace_s=choose_grace_s(flags, self._plan))
        answer = stop_as_json(self.name, make_rows(results))
        survivors_by_host = {
            row["host"]: row["survivors"] for row in answer["hosts"] if row["survivors"]
        }
        if survivors_by_host:
            raise SurvivorsLeft(
                f"processes are left: {survivors_by_host}", where=", ".join(survivors_by_host)
            )
        self._raise_if_errors("stop", split_outcomes(results)[1])
        return answer

    @_log_printed_messages()
    def fetch(
        self,
        *,
        keep: bool = False,
        files: bool = False,
        logs: bool = False,
        to: File | None = None,
        overwrite: bool = False,
        max: int | str | None = None,
        bwlimit: int | str | None = None,
        limit: str | None = None,
        exclude: str | None = None,
    ) -> FetchAnswer:
        """Copy checkpoints (`keep`), files and logs of the run to this machine.

        Only the kinds whose argument is True are copied; all three kinds if no argument is True.
        `ok` of the answer is false if a file was left out, for example because it was changed on
        this machine. Raises the error of hosts that failed, after all other hosts are done.
        """
        flags = _make_flags(fetch_flags.Flags, {**locals(), "parallel": self._parallel})
        with open_fleet(flags, flags.bwlimit) as fleet:
            only, log = self._select_hosts(flags), _make_event_logger(fleet)
            fetched, answer, _ = fetch_to_folder(flags, fleet, self._plan, only, log)
        self._raise_if_errors("fetch", split_outcomes(fetched.hosts)[1])
        return answer

    def watch(self, every: float = 2.0) -> None:
        """Draw the table of tasks, and replace it every `every` seconds until the run ends.

        A notebook shows the table in the cell. Ctrl-C ends only `watch`, not the run.
        """
        from tfdeploy.ui.status_table import draw_tables

        def tables() -> Iterator[Any]:
            final = False
            while not final:
                table, final = self._make_task_table()
                yield table
                time.sleep(0 if final else every)

        draw_tables(tables())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the table of tasks for a notebook, or the reason why there is none."""
        try:
            table = self._make_task_table()[0]
        except TfdeployError as error:
            return {"text/plain": f"{self!r}: {error}"}
        bundle: dict[str, str] = table._repr_mimebundle_(include, exclude)
        return bundle

    @_log_printed_messages()
    def _make_task_table(self) -> tuple[Any, bool]:
        """Return the table of tasks, and whether the run has ended."""
        # The import of rich is slow, and scripts need no table.
        from tfdeploy.ui.status_table import status_table

        view = self._ask_status(CommonFlags()).view
        return status_table(view, time.time()), view.is_final

    def _ask_status(self, flags: CommonFlags) -> Status:
        only = self._select_hosts(flags)
        current = ask_status(self._fleet, self._plan, only)
        if exit_code_if_unreachable(self._plan, only, current.errors):
            self._raise_if_errors("status", current.errors)
        return current

    def _select_hosts(self, flags: CommonFlags) -> frozenset[str] | None:
        return LookupScope(flags, self._inventory, None).select_run_hosts(self._plan)

    def _raise_if_errors(self, action: str, errors: Mapping[str, TfdeployError]) -> None:
        if errors:
            raise combine_errors(action, errors, len(self._plan.hosts))


def _make_launch_request(values: dict[str, Any]) -> tuple[launch_flags.Flags, LaunchRequest]:
    job, inventory, command = values["job"], values["inventory"], values["command"]
    if command is not None:
        values["after_dashes"] = tuple(command)
    flags = _make_flags(launch_flags.Flags, values)
    known = job if isinstance(job, Job) else None
    hosts = inventory if isinstance(inventory, Inventory) else None
    return flags, make_launch_request(flags, known, hosts)


def _make_event_logger(fleet: SshFleet) -> Emit:
    """Return a function that logs events. From now on, `fleet` also logs why it retries a host."""
    view = PlainView(_LogTerminal(sys.stderr, None, False))
    fleet.on_notice = make_wait_warner(view)
    return view


def _make_flags(record: type[F], values: Mapping[str, Any]) -> F:
    """Return a verb's flags as a `record`. Texts are parsed as on the command line. `values`:
    {flag: value}. Raises UsageError."""
    known = {
        each.name: _read_flag_value(each, values[each.name])
        for each in fields(record)
        if values.get(each.name) is not None
    }
    return record(**{**known, "json": True, "quiet": True})


def _read_flag_value(field: Any, value: Any) -> Any:
    options = field.metadata.get("options", {})
    if isinstance(value, Job):
        # The search for the inventory begins in the folder of the job file, so return its path.
        return str(Path(value.folder, Path(value.source).name))
    if isinstance(value, Inventory):
        return None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if options.get("action") == "append" and isinstance(value, str):
        return [value]
    if value not in options.get("choices", (value,)):
        raise unknown_choice_error(value, options["choices"], field.name)
    read = options.get("type")
    # A whole number is parsed as text, so that a number out of range is refused. A time (`moment`)
    # is an exception: the number 30 means UTC seconds, but the text "30" means 30 s ago.
    if read and (isinstance(value, str) or (isinstance(value, int) and read is not moment)):
        try:
            return read(str(value))
        except ArgumentTypeError as error:
            raise UsageError(str(error), where=field.name, next=options["help"]) from None
    return value
