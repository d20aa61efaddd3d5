"""What operations make of the answers of two hosts, LIAR and OTHER, verb by verb. None of it leaves
the process."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.faults.honest import ANSWERS, FILES, HOSTS, JOB, LOG, RUN, the_plan
from support.faults.hostile import LyingFleet
from tfdeploy.errors import BadAnswer, TfdeployError
from tfdeploy.model.answers.verb import Flow
from tfdeploy.model.clean import Rules
from tfdeploy.model.events import Event
from tfdeploy.model.job import DataSource, Job
from tfdeploy.model.output.check import host_rows, link_rows
from tfdeploy.model.status.run_status import run_view_json
from tfdeploy.operations import setup, sync
from tfdeploy.operations.audit import Subject, audit
from tfdeploy.operations.broadcast.copy_keep import KeepCopy, copy_keep
from tfdeploy.operations.broadcast.delivery import listing_of
from tfdeploy.operations.broadcast.held_source import HeldSource
from tfdeploy.operations.broadcast.origin import look_at
from tfdeploy.operations.check import check
from tfdeploy.operations.clean import find, remove
from tfdeploy.operations.copy.pull import Source, fetch_folder, list_files
from tfdeploy.operations.copy.pull_logs import fetch_logs
from tfdeploy.operations.launching.clocks import compare_clocks
from tfdeploy.operations.launching.keep_elsewhere import set_aside_elsewhere
from tfdeploy.operations.launching.reachability import check_links
from tfdeploy.operations.launching.rollback import roll_back
from tfdeploy.operations.lock import locked
from tfdeploy.operations.probe import Asked, probe
from tfdeploy.operations.run_lookup.ask import ask_all
from tfdeploy.operations.run_lookup.find_run import find_runs, hosts_of
from tfdeploy.operations.runs import list_runs
from tfdeploy.operations.samples import samples
from tfdeploy.operations.sending.shipment import read_shipment
from tfdeploy.operations.status import status
from tfdeploy.operations.stop import stop
from tfdeploy.operations.tasklogs.stored_lines import stored_lines
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.operations.tensorboard import tensorboard
from tfdeploy.operations.watch.listen import _receive
from tfdeploy.operations.watch.resume import resume
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Session
from tfdeploy.ui.checks import show_checks
from tfdeploy.ui.terminal import Terminal

LIAR, OTHER = HOSTS
PLAN = the_plan()


def nobody(event: Event) -> None:
    return None


class Wires:
    """rsync, as far as it matters here: what goes where, and what comes."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[str, set[str]]]] = {LIAR: [], OTHER: []}

    def push(self, target: Any, root: str, names: list[bytes] | None, folder: str, **_: Any) -> int:
        listed = {os.fsdecode(name) for name in names or []}
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


Doing = Callable[[LyingFleet, Path, Job], dict[str, Any]]


def syncs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    return sync.sync(fleet, hosts_of(PLAN), read_shipment(job, None), nobody)


def watches(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    watch, found = Watch(fleet, PLAN, nobody), {}
    for host in hosts_of(PLAN):
        try:
            _receive(watch, host, threading.Event())
            found[host.name] = watch.states.get(host.name)
        except TfdeployError as error:
            watch.receive(host.name, error)
            found[host.name] = error
    watch.emit_run(watch.view())
    return found


def reads_logs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    lost: dict[str, TfdeployError] = {}
    lines = list(stored_lines(fleet, PLAN, LogQuery(tasks=tuple(HOSTS.values())), lost))
    assert [line.line for line in lines if line.host == OTHER] == LOG.splitlines()
    return {**dict.fromkeys(HOSTS), **lost}


def fetches(what: str) -> Doing:
    def do(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
        source = Source(what, JOB, RUN, ("sub",))
        return fleet.each(
            hosts_of(PLAN),
            lambda each: fetch_folder(
                each, source, folder / each.host.name, nobody, overwrite=True
            ),
        )

    return do


def fetches_logs(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    return fleet.each(
        hosts_of(PLAN), lambda session: fetch_logs(session, PLAN, folder / "logs", nobody)
    )


def looks(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    return fleet.each(
        hosts_of(PLAN), lambda session: list_files(session, Source("keep", JOB, keep=("sub",)))
    )


def spreads(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """From the other one to the liar."""
    return alone(
        lambda: copy_keep(fleet, KeepCopy(JOB, ("sub",), hosts_of(PLAN)[1]), hosts_of(PLAN), nobody)
    )


def holds(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """Each as the source of a broadcast of a.txt."""

    def ask(session: Session) -> bytes:
        source = HeldSource(session, "b1", listing_of([("a.txt", len(FILES["a.txt"]), 1)]), [0])
        source.sum_next()
        return source.piece(0, 0, source.cut.segment(0)[0])

    return fleet.each(hosts_of(PLAN), ask)


def alone(act: Callable[[], Any]) -> dict[str, Any]:
    """For what is done on all hosts or fails."""
    try:
        return {LIAR: act()}
    except TfdeployError as error:
        return {LIAR: error}


def locks(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    def act() -> None:
        with locked(
            fleet,
            hosts_of(PLAN),
            JOB,
            "sync",
            {"user": "me", "machine": "m", "pid": 1, "time": 1.0},
            nobody,
        ):
            pass

    return alone(act)


def sets_aside(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """On hosts that the plan has no task for."""
    holder, elsewhere = (
        {"user": "me", "machine": "m", "pid": 1, "time": 1.0},
        replace(PLAN, hosts=(), keep=("sub",)),
    )
    return set_aside_elsewhere(fleet, elsewhere, hosts_of(PLAN), holder, nobody)


def sets_up(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    holder = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}
    return setup.setup_job(fleet, hosts_of(PLAN), job, holder, None, nobody)


def probes(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    def act() -> Any:
        facts = probe(
            fleet,
            hosts_of(PLAN),
            Asked.of(hosts_of(PLAN), job=JOB, keep=("sub",), preflight=True),
            emit=nobody,
        )
        assert all(2222 <= port <= 2299 for each in facts.values() for port in each.free_ports)
        return facts

    return alone(act)


def checks(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    """With links, measured. What a host did wrong is among its checks; what the other one has none
    of is an error for it."""
    found = check(hosts_of(PLAN), None, fleet, nobody, deep=True)
    rows, links = host_rows(found), link_rows(found)
    json.dumps([rows, links])
    show_checks(Terminal(io.StringIO(), 80, False), rows, links)
    failed = {host["host"]: [each for each in host["checks"] if not each["ok"]] for host in rows}
    own = {
        host: next((each for each in bad if each["check"] in ("ssh", "agent")), None)
        for host, bad in failed.items()
    }
    return {
        host: None if bad is None else BadAnswer(bad["detail"], where=host)
        for host, bad in own.items()
    }


def shows_board(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    def act() -> None:
        with tensorboard(fleet, PLAN, host=LIAR) as board:
            board.wait()

    return alone(act)


def knows(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    known, silent = find_runs(fleet, hosts_of(PLAN), JOB)
    assert any(OTHER in each.states for each in known)
    list_runs(fleet, hosts_of(PLAN), RunStore(folder / "store"), JOB)
    return {**dict.fromkeys(HOSTS), **silent}


def stands(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    found = status(fleet, PLAN)
    run_view_json(found.view)
    assert next(task for task in found.view.tasks if task.host == OTHER).outcome == "failed"
    return {**dict.fromkeys(HOSTS), **found.errors}


def audits(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    found, errors = audit(fleet, hosts_of(PLAN), Subject(run=RUN, job=JOB, plan=PLAN))
    assert [row["outcome"] for row in found["entries"] if row["host"] == OTHER] == [
        "prepared",
        "committed",
    ]
    assert [row["forgotten"] for row in found["secrets"] if row["host"] == OTHER] == [True]
    json.dumps(found)
    return {**dict.fromkeys(HOSTS), **errors}


def samples_all(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    found = samples(fleet, PLAN)
    assert [row.printed for row in found.tasks[HOSTS[OTHER]]] == [{"step": 2.0, "loss": 0.5}]
    assert found.hosts[OTHER][0].cpu == 1.0
    return {**dict.fromkeys(HOSTS), **found.errors}


def cleans(fleet: LyingFleet, folder: Path, job: Job) -> dict[str, Any]:
    found = find(fleet, hosts_of(PLAN), (JOB,), Rules(), 100.0)
    # a host that says the run is alive keeps it everywhere
    going = [item.name for item in found.going[OTHER]]
    assert going == [RUN] or LIAR in found.staying
    holder = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}
    removed = remove(fleet, found, hosts_of(PLAN), (JOB,), Rules(), holder, nobody)  # type: ignore[arg-type]
    assert [item.name for item in removed.gone.get(OTHER, ())] == going
    return {**dict.fromkeys(HOSTS), **found.errors, **removed.errors}


def asks(verb: str) -> Doing:
    return lambda fleet, project_folder, job: ask_all(fleet, PLAN, ANSWERS[verb])  # type: ignore[arg-type, return-value]


def looks_at_data(fleet: Any, folder: Path, job: Job) -> Any:
    def look(host: Any) -> object:
        try:
            return look_at(fleet, host, "/data").digest
        except TfdeployError as error:
            return error

    return {host.name: look(host) for host in hosts_of(PLAN)}


def drains(verb: str) -> Doing:
    flow: Any = ANSWERS[verb]
    return lambda fleet, project_folder, job: fleet.each(
        hosts_of(PLAN), lambda session: list(session.agent().stream(flow))
    )


DOINGS: dict[str, tuple[Doing, ...]] = {
    "audit": (audits,),
    "samples": (samples_all,),
    "clean.list": (cleans,),
    "clean.remove": (cleans,),
    "ping": (lambda fleet, here, job: alone(lambda: compare_clocks(fleet, PLAN)), asks("ping")),
    "check.listen": (checks,),
    "check.knock": (checks,),
    "check.measure": (checks,),
    "lock": (locks,),
    "unlock": (locks,),
    "probe": (probes, checks),
    "release.state": (syncs,),
    "release.begin": (syncs,),
    "release.commit": (syncs,),
    "data.state": (syncs,),
    "data.begin": (syncs,),
    "data.commit": (syncs,),
    "data.lack": (syncs,),
    "broadcast.join": (syncs,),
    "broadcast.read": (drains("broadcast.read"), holds),
    "data.look": (looks_at_data,),
    "broadcast.sums": (holds,),
    "keep.aside": (sets_aside,),
    "keep.begin": (spreads,),
    "keep.place": (spreads,),
    "fetch.list": (looks, fetches("keep"), fetches("files"), spreads),
    "fetch.sums": (fetches("files"),),
    "fetch.log_sum": (fetches_logs,),
    "env.state": (sets_up,),
    "env.make": (sets_up,),
    "run.links": (lambda fleet, here, job: alone(lambda: check_links(fleet, PLAN)),),
    "run.abort": (
        lambda fleet, here, job: alone(lambda: roll_back(fleet, PLAN, nobody, "test", purge=False)),
    ),
    "run.stop": (lambda fleet, here, job: stop(fleet, PLAN, grace_s=0.0),),
    "run.resume": (lambda fleet, here, job: alone(lambda: resume(fleet, PLAN, LIAR)),),
    "run.status": (stands, fetches_logs),
    "run.watch": (watches,),
    "run.plan": (knows,),
    "runs": (knows,),
    "logs": (reads_logs, fetches_logs, stands),
    "tensorboard": (shows_board,),
}


def doings_of(verb: str) -> tuple[Doing, ...]:
    """A verb that no operation above asks by itself is asked of both hosts."""
    return DOINGS.get(verb) or (drains(verb) if isinstance(ANSWERS[verb], Flow) else asks(verb),)


def small_job(tmp_path: Path) -> Job:
    """Of FILES as code and as data; `secret` is ignored."""
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
