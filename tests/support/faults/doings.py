"""Run tfdeploy's operations on two simulated hosts: LIAR, which sends wrong answers, and OTHER. For
each verb (request to the agent), a table lists the operations that use the verb's answers.

No network connection is made.
"""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.faults.honest import ANSWERS, FILES, HOSTS, JOB, LOG, RUN, make_plan
from support.faults.hostile import LyingFleet
from tfdeploy.errors import BadAnswer, HostFailed, TfdeployError
from tfdeploy.model.answers.clean import CleanRules
from tfdeploy.model.events import Event
from tfdeploy.model.job import DataSource, Job
from tfdeploy.model.output.check import host_rows, link_rows
from tfdeploy.model.status.run_status import run_view_json
from tfdeploy.operations import setup, sync
from tfdeploy.operations.audit import AuditSubject, audit
from tfdeploy.operations.broadcast.copy_keep import KeepCopyRequest, copy_keep
from tfdeploy.operations.broadcast.delivery import make_file_listing
from tfdeploy.operations.broadcast.held_source import HostBroadcastSource
from tfdeploy.operations.broadcast.origin import list_origin_data
from tfdeploy.operations.check import check
from tfdeploy.operations.clean import find_candidates, remove_candidates
from tfdeploy.operations.copy.fetch_budget import FetchBudget
from tfdeploy.operations.copy.pull import FetchSource, fetch_folder, list_files
from tfdeploy.operations.copy.pull_logs import fetch_logs
from tfdeploy.operations.launching.clocks import compare_clocks
from tfdeploy.operations.launching.keep_elsewhere import rename_keep_on_others
from tfdeploy.operations.launching.reachability import check_links
from tfdeploy.operations.launching.rollback import PreparedRun
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.probe import ProbeQuestions, probe
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.operations.run_lookup.find_run import find_runs, hosts_of
from tfdeploy.operations.runs import list_runs
from tfdeploy.operations.samples import read_samples
from tfdeploy.operations.sending.shipment import read_shipment
from tfdeploy.operations.status import status
from tfdeploy.operations.stop import stop
from tfdeploy.operations.tasklogs.stored_lines import stored_lines
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.operations.tensorboard import tensorboard
from tfdeploy.operations.watch.listen import _receive_reports_until_run_end
from tfdeploy.operations.watch.resume import resume_or_end_on_host
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.store.runs import RunStore
from tfdeploy.text.typed import StreamingVerb
from tfdeploy.transport.protocols import Session
from tfdeploy.ui.checks import show_check_problems
from tfdeploy.ui.terminal import Terminal

LIAR, OTHER = HOSTS
PLAN = make_plan()


def ignore_event(event: Event) -> None:
    return None


class Wires:
    """A stand-in for rsync. It records what is pushed and provides what is pulled."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[str, set[str]]]] = {LIAR: [], OTHER: []}

    def push(self, target: Any, root: str, names: list[bytes], folder: str, **_: Any) -> int:
        listed = {os.fsdecode(name) for name in names}
        self.sent[str(target)].append((folder, listed))
        return 1

    def pull(self, target: Any, root: str, folder: str, *, names: list[bytes], **_: Any) -> int:
        for name in map(os.fsdecode, names):
            if name in FILES:
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(FILES[name])
                os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)
        return 1


Operation = Callable[[LyingFleet, Path, Job], dict[str, Any]]


def sync_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    return sync.sync(fleet, hosts_of(PLAN), read_shipment(job, None), ignore_event)


def watch_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    watch, found = Watch(fleet, PLAN, ignore_event), {}
    for host in hosts_of(PLAN):
        try:
            _receive_reports_until_run_end(watch, host, threading.Event())
            found[host.name] = watch.states.get(host.name)
        except TfdeployError as error:
            watch.receive_report(host.name, error)
            found[host.name] = error
    watch.emit_run_if_changed(watch.view())
    return found


def read_logs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    lost: dict[str, TfdeployError] = {}
    lines = list(stored_lines(fleet, PLAN, LogQuery(tasks=tuple(HOSTS.values())), lost))
    assert [line.line for line in lines if line.host == OTHER] == LOG.splitlines()
    return {**dict.fromkeys(HOSTS), **lost}


def fetch_of(what: str) -> Operation:
    def do(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
        source = FetchSource(what, JOB, RUN, ("sub",))
        return fleet.each(
            hosts_of(PLAN),
            lambda each: fetch_folder(
                each,
                source,
                folder / each.host.name,
                ignore_event,
                FetchBudget(each.host.name),
                overwrite=True,
            ),
        )

    return do


def fetch_both_logs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    return fleet.each(
        hosts_of(PLAN),
        lambda session: fetch_logs(
            session, PLAN, folder / "logs", ignore_event, FetchBudget(session.host.name)
        ),
    )


def look_for_runs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    return fleet.each(
        hosts_of(PLAN), lambda session: list_files(session, FetchSource("keep", JOB, keep=("sub",)))
    )


def send_data_to_liar(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """Copy the `keep` folder from the host OTHER to the host LIAR, which gives false answers."""
    return run_alone(
        lambda: copy_keep(
            fleet, KeepCopyRequest(JOB, ("sub",), hosts_of(PLAN)[1]), hosts_of(PLAN), ignore_event
        )
    )


def use_as_source(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """Use each host as the source of a broadcast of a.txt."""

    def ask(session: Session) -> bytes:
        source = HostBroadcastSource(
            session, "b1", make_file_listing([("a.txt", len(FILES["a.txt"]), 1)]), [0]
        )
        source.hash_next_segment()
        return source.read_checked_piece(0, 0, source.cut.segment(0)[0])

    return fleet.each(hosts_of(PLAN), ask)


def run_alone(act: Callable[[], Any]) -> dict[str, Any]:
    """Call `act`. Return {LIAR: the result of `act`, or its error}. LIAR is the host that gives
    false answers.

    This function is for operations that have one result for all hosts, because they succeed on all
    hosts or fail as a whole.
    """
    try:
        return {LIAR: act()}
    except TfdeployError as error:
        return {LIAR: error}


def lock_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    def act() -> None:
        with HostLocks(
            fleet=fleet,
            hosts=hosts_of(PLAN),
            job=JOB,
            operation="sync",
            holder={"user": "me", "machine": "m", "pid": 1, "time": 1.0},
            emit=ignore_event,
        ).hold():
            pass

    return run_alone(act)


def set_keep_aside(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """Rename the checkpoints with the verb keep.aside. tfdeploy does this on hosts on which the
    plan has no task.
    """
    holder, elsewhere = (
        {"user": "me", "machine": "m", "pid": 1, "time": 1.0},
        replace(PLAN, hosts=(), keep=("sub",)),
    )
    return rename_keep_on_others(fleet, elsewhere, hosts_of(PLAN), holder, ignore_event)


def set_up_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    holder = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}
    return setup.setup_job(fleet, hosts_of(PLAN), job, holder, None, ignore_event)


def probe_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    def act() -> Any:
        facts = probe(
            fleet,
            hosts_of(PLAN),
            ProbeQuestions.for_hosts(hosts_of(PLAN), job=JOB, keep=("sub",), preflight=True),
            emit=ignore_event,
        )
        assert all(2222 <= port <= 2299 for each in facts.values() for port in each.free_ports)
        return facts

    return run_alone(act)


def check_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """Check both hosts and measure the links between them.

    A mistake in a host's answer must appear as a failed check of that host. A host also counts as
    failed if the expected checks are missing.
    """
    checked = check(hosts_of(PLAN), None, fleet, ignore_event, deep=True)
    rows, links = host_rows(checked), link_rows(checked)
    json.dumps([rows, links])
    show_check_problems(Terminal(io.StringIO(), 80, False), rows, links)
    failed = {host["host"]: [each for each in host["checks"] if not each["ok"]] for host in rows}
    own = {
        host: next((each for each in bad if each["check"] in ("ssh", "agent")), None)
        for host, bad in failed.items()
    }
    return {
        host: None if bad is None else BadAnswer(bad["detail"], where=host)
        for host, bad in own.items()
    }


def show_tensorboard(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    def act() -> None:
        with tensorboard(fleet, PLAN, host=LIAR) as board:
            board.wait()

    return run_alone(act)


def list_known_runs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    known, silent = find_runs(fleet, hosts_of(PLAN), JOB)
    assert any(OTHER in each.states for each in known)
    list_runs(fleet, hosts_of(PLAN), RunStore(folder / "store"), JOB)
    return {**dict.fromkeys(HOSTS), **silent}


def show_status(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    run_status = status(fleet, PLAN)
    run_view_json(run_status.view)
    assert next(task for task in run_status.view.tasks if task.host == OTHER).outcome == "failed"
    return {**dict.fromkeys(HOSTS), **run_status.errors}


def audit_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    audited, errors = audit(fleet, hosts_of(PLAN), AuditSubject(run=RUN, job=JOB, plan=PLAN))
    assert [row["outcome"] for row in audited["entries"] if row["host"] == OTHER] == [
        "prepared",
        "committed",
    ]
    assert [row["forgotten"] for row in audited["secrets"] if row["host"] == OTHER] == [True]
    json.dumps(audited)
    return {**dict.fromkeys(HOSTS), **errors}


def collect_samples(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    gathered = read_samples(fleet, PLAN)
    assert [row.printed for row in gathered.tasks[HOSTS[OTHER]]] == [{"step": 2.0, "loss": 0.5}]
    assert gathered.hosts[OTHER][0].cpu == 1.0
    return {**dict.fromkeys(HOSTS), **gathered.errors}


def clean_both(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    candidates = find_candidates(fleet, hosts_of(PLAN), (JOB,), CleanRules(), 100.0)
    # The run on OTHER must be removed, unless LIAR reports that the run is alive.
    going = [item.name for item in candidates.removable_items[OTHER]]
    assert going == [RUN] or LIAR in candidates.staying_items
    holder = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}
    removed = remove_candidates(
        fleet, candidates, hosts_of(PLAN), (JOB,), CleanRules(), holder, ignore_event
    )  # type: ignore[arg-type]
    assert [item.name for item in removed.removed_items.get(OTHER, ())] == going
    return {**dict.fromkeys(HOSTS), **candidates.errors, **removed.errors}


def ask_verb(verb: str) -> Operation:
    return lambda fleet, project_folder, job: call_all(fleet, PLAN, ANSWERS[verb])  # type: ignore[arg-type, return-value]


def look_at_data(fleet: Any, folder: Path, job: Job) -> Any:
    def read_digest(host: Any) -> object:
        try:
            return list_origin_data(fleet, host, "/data").digest
        except TfdeployError as error:
            return error

    return {host.name: read_digest(host) for host in hosts_of(PLAN)}


def drain_stream(verb: str) -> Operation:
    flow: Any = ANSWERS[verb]
    return lambda fleet, project_folder, job: fleet.each(
        hosts_of(PLAN), lambda session: list(session.agent().stream(flow))
    )


DOINGS: dict[str, tuple[Operation, ...]] = {
    "audit": (audit_both,),
    "samples": (collect_samples,),
    "clean.list": (clean_both,),
    "clean.remove": (clean_both,),
    "ping": (
        lambda fleet, here, job: run_alone(lambda: compare_clocks(fleet, PLAN)),
        ask_verb("ping"),
    ),
    "check.listen": (check_both,),
    "check.knock": (check_both,),
    "check.measure": (check_both,),
    "lock": (lock_both,),
    "unlock": (lock_both,),
    "probe": (probe_both, check_both),
    "release.state": (sync_both,),
    "release.begin": (sync_both,),
    "release.commit": (sync_both,),
    "data.state": (sync_both,),
    "data.losing": (sync_both,),
    "data.commit": (sync_both,),
    "data.lack": (sync_both,),
    "broadcast.join": (sync_both,),
    "broadcast.read": (drain_stream("broadcast.read"), use_as_source),
    "data.look": (look_at_data,),
    "broadcast.sums": (use_as_source,),
    "keep.aside": (set_keep_aside,),
    "keep.begin": (send_data_to_liar,),
    "keep.place": (send_data_to_liar,),
    "fetch.list": (look_for_runs, fetch_of("keep"), fetch_of("files"), send_data_to_liar),
    "fetch.sums": (fetch_of("files"),),
    "fetch.log_sum": (fetch_both_logs,),
    "env.state": (set_up_both,),
    "env.make": (set_up_both,),
    "run.links": (lambda fleet, here, job: run_alone(lambda: check_links(fleet, PLAN)),),
    "run.abort": (
        lambda fleet, here, job: run_alone(
            lambda: PreparedRun(fleet, PLAN, ignore_event, "start").roll_back_on_error(
                None, HostFailed("test"), None
            )
        ),
    ),
    "run.stop": (lambda fleet, here, job: stop(fleet, PLAN, grace_s=0.0),),
    "run.resume": (
        lambda fleet, here, job: run_alone(lambda: resume_or_end_on_host(fleet, PLAN, LIAR)),
    ),
    "run.status": (show_status, fetch_both_logs),
    "run.watch": (watch_both,),
    "run.plan": (list_known_runs,),
    "runs": (list_known_runs,),
    "logs": (read_logs, fetch_both_logs, show_status),
    "tensorboard": (show_tensorboard,),
}


def operations_of_verb(verb: str) -> tuple[Operation, ...]:
    """Return the operations that use a verb.

    If no operation uses the verb, return one operation that calls the verb directly on both hosts.
    """
    return DOINGS.get(verb) or (
        drain_stream(verb) if isinstance(ANSWERS[verb], StreamingVerb) else ask_verb(verb),
    )


def small_job(tmp_path: Path) -> Job:
    """Return a job whose code and data are the files FILES. The file `secret` is in the ignore
    list, so it is not sent.
    """
    code, data = tmp_path / "code", tmp_path / "data"
    for folder in (code, data):
        for path, text in FILES.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text)
    (code / ".tfdeployignore").write_text("secret\n")
    (code / "secret").write_text("key")
    (code / "requirements.txt").write_text("numpy\n")
    wanted = str(code / "requirements.txt")
    data_sets = {"digits": DataSource(path=str(data))}
    return Job(
        name=JOB,
        mode="async",
        code=str(code),
        command=("python", "a.txt"),
        data=data_sets,
        setup_requirements=wanted,
    )
