"""Return an honest answer to each verb, for a run of two tasks on two hosts.

The answers are small and contain all required fields.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import typing
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from protocol_table import verbs
from tfdeploy.agent import frames, wire
from tfdeploy.agent.listing import Listing, Row
from tfdeploy.agent.pieces import hash_piece
from tfdeploy.model.answers.hosts import Hello
from tfdeploy.model.facts import PreflightFacts
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan, without_ssh_settings
from tfdeploy.model.plan_files import plan_to_file
from tfdeploy.text.typed import InvalidJsonValue, convert_untrusted

RUN, JOB, WORKDIR = "r1", "j", "/home/ml/tfdeploy"
HOSTS = {"n1": "worker:0", "n2": "worker:1"}
LOG = b"step 1 loss 0.5\nstep 2 loss 0.4\n"
ANSWERS = verbs()
_LEAST: tuple[Any, ...] = (None, False, 1, [], {}, "x", "/x", "0" * 64, "worker:0")
# {path: content} of the files in the `keep` folder, in the fetched folder and in the release.
FILES = {"a.txt": b"one\n", "sub/b.txt": b"two\n"}
DATA_DIGEST = "d" * 64


class HonestAnswer(NamedTuple):
    items: list[tuple[dict[str, Any], bytes]]
    value: Any


def make_plan() -> Plan:
    """Return the plan of the run. `sub` is its only `keep` folder."""
    tasks = tuple(
        TaskPlan(
            task=task,
            role="worker",
            index=number,
            host=host,
            address="",
            port=None,
            gpus=(),
            argv=("python", "x.py"),
            env={},
            deciding=number == 0,
            why="",
        )
        for number, (host, task) in enumerate(HOSTS.items())
    )
    hosts = tuple(
        HostPlan(
            host=host,
            address=f"192.0.2.{number}",
            mesh_port=2222,
            workdir=WORKDIR,
            python="/usr/bin/python3",
            ssh={"name": host, "address": f"192.0.2.{number}"},
        )
        for number, host in enumerate(HOSTS, 1)
    )
    return Plan(
        run=RUN,
        job=JOB,
        mode="async",
        created=1.0,
        operator="me@here",
        release="c0ffee",
        command=("python", "x.py"),
        cluster={},
        hosts=hosts,
        tasks=tasks,
        deciding=("worker:0",),
        flags_appended=(),
        keep=("sub",),
    )


def honest_answer(verb: str, host: str, args: dict[str, Any]) -> HonestAnswer:
    flows = {
        "run.plan": _plan,
        "broadcast.join": _join,
        "broadcast.lend": _join,
        "broadcast.read": lambda host, args: HonestAnswer([({"index": 0}, FILES["a.txt"])], {}),
        "data.look": _answer_listing,
        "run.watch": _watch,
        "logs": _logs,
        "fetch.list": _list,
        "fetch.sums": _sums,
        "env.make": _make,
        "tensorboard": _board,
        "check.listen": _listen,
        "audit": _audit,
        "samples": _samples,
        "clean.list": _clean_items,
        "clean.remove": _clean_items,
    }
    if verb in flows:
        return flows[verb](host, args)
    written = _VALUES[verb](host, args) if verb in _VALUES else {}
    # `hello` is the first message of a connection and not a verb.
    hint = ANSWERS[verb].value if verb in ANSWERS else Hello
    return HonestAnswer([], completed(hint, written))


def completed(hint: Any, written: Any) -> Any:
    """Return the answer `written` with all required fields of the type `hint`. Each field that
    `written` lacks gets the smallest value of its type.
    """
    required = _required_fields(hint)
    if required is None or not isinstance(written, dict):
        return written or smallest_value(hint)
    missing = {name: each for name, each in required.items() if name not in written}
    return {**written, **{name: smallest_value(each) for name, each in missing.items()}}


def smallest_value(hint: Any) -> Any:
    """Return the smallest value of a type of model/answers. Optional fields are absent and lists
    are empty.
    """
    if _required_fields(hint) is not None:
        return completed(hint, {})
    return next(value for value in _LEAST if _is_of_type(value, hint))


def _required_fields(hint: Any) -> dict[str, Any] | None:
    """Return {name: type} of the required fields, or None if the type has no fields."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {each.encode_name: each.type for each in structs.fields(hint) if each.required}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return {
            each.name: hints[each.name]
            for each in dataclasses.fields(hint)
            if each.default is each.default_factory is dataclasses.MISSING
        }
    return None


def _is_of_type(value: Any, hint: Any) -> bool:
    with suppress(InvalidJsonValue):
        convert_untrusted(value, hint)
        return True
    return False


def _status(host: str) -> dict[str, Any]:
    fields = wire.TaskStatus(
        run=RUN,
        task=HOSTS[host],
        host=host,
        attempt=1,
        state="ended",
        outcome="failed",
        exit_code=1,
        started=1.0,
        ended=2.0,
        log_bytes=len(LOG),
    )
    by_name: dict[str, Any] = wire.to_wire(fields)
    return by_name


def _state(host: str) -> dict[str, Any]:
    death = {
        "task": HOSTS[host],
        "host": host,
        "outcome": "failed",
        "time": 2.0,
        "exit_code": 1,
        "attempt": 1,
    }
    by_name: dict[str, Any] = wire.to_wire(
        wire.HostRunState(
            run=RUN,
            job=JOB,
            host=host,
            phase="ended",
            started=1.0,
            ended=2.0,
            first_death=death,
            ended_tasks={HOSTS[host]: death},
            left_files=["x"],
        )
    )
    return by_name


def _run_standing(host: str, _: Any = None) -> dict[str, Any]:
    return {"host_state": _state(host), "tasks": [_status(host)], "live": False, "left": False}


def _samples(host: str, _: Any) -> HonestAnswer:
    task = {
        "time": 1.5,
        "attempt": 1,
        "cpu": 0.5,
        "memory": 1000,
        "printed": {"step": 2.0, "loss": 0.5},
    }
    own = {
        "time": 1.5,
        "cpu": 1.0,
        "memory": 5000,
        "rates": {"sent": 10},
        "gpus": [[0, 50.0, 100, None]],
    }
    items = [
        ({"task": name}, frames.compress(json.dumps(row).encode() + b"\n"))
        for name, row in (("", own), (HOSTS[host], task))
    ]
    died = {
        "number": 1,
        "started": 1.0,
        "ended": 1.4,
        "outcome": "failed",
        "exit_code": 1,
        "signal": None,
        "reason": "no data",
    }
    return HonestAnswer(items, {"cores": 2, "memory": None, "attempts": {HOSTS[host]: [died]}})


def _clean_items(host: str, _: Any) -> HonestAnswer:
    ended = {
        "kind": "run",
        "job": JOB,
        "name": RUN,
        "bytes": 10,
        "ended": 1.0,
        "stays": "",
        "live": False,
    }
    return HonestAnswer([(ended, b"")], {"workdir_id": "", "jobs": [JOB]})


def _audit(host: str, _: Any) -> HonestAnswer:
    """Return an audit log of two entries."""
    fields = {
        "host": host,
        "user": "ml",
        "operator": "me@here",
        "from": "192.0.2.9",
        "verb": "launch",
        "job": JOB,
        "run": RUN,
    }
    lines: list[bytes] = []
    for number, outcome in enumerate(("prepared", "committed"), 1):
        entry = {**fields, "time": 1.5, "outcome": outcome, "secrets": ["TOKEN"][: 2 - number]}
        lines.append(json.dumps(entry).encode())
    items = [({}, frames.compress(b"")), ({}, frames.compress(b"\n".join([*lines, b""])))]
    left, admitted = [{"kind": "secret", "path": "/x"}], [{"address": "192.0.2.7", "of": "n2"}]
    return HonestAnswer(items, {"left": left, "held": [], "tensorflow": None, "admitted": admitted})


def _plan(host: str, args: dict[str, Any]) -> HonestAnswer:
    text = json.dumps(plan_to_file(without_ssh_settings(make_plan()))).encode()
    known = args.get("unless") == hashlib.sha256(text).hexdigest()
    return HonestAnswer([] if known else [({}, frames.compress(text))], {})


def _join(host: str, _: Any) -> HonestAnswer:
    return HonestAnswer(
        [({"port": 2222}, b""), ({"have": 8, "received": 8}, b"")], {"have": 8, "received": 8}
    )


def _answer_listing(host: str, _: Any) -> HonestAnswer:
    rows = Listing()
    rows.add(
        Row(path=b"", kind="d", size=0, mtime_ns=1, mode=0o755, target=b"", same_as=-1, allocated=0)
    )
    rows.add(
        Row(
            path=b"a.txt",
            kind="f",
            size=4,
            mtime_ns=1,
            mode=0o644,
            target=b"",
            same_as=-1,
            allocated=4,
        )
    )
    packed = rows.pack()
    return HonestAnswer([({"bytes": len(packed)}, packed)], {"folder": True, "stamp": "1"})


def _watch(host: str, _: Any) -> HonestAnswer:
    return HonestAnswer([({"task": _status(host)}, b""), ({"host_state": _state(host)}, b"")], {})


def _logs(host: str, args: dict[str, Any]) -> HonestAnswer:
    task = HOSTS[host]
    at = (args.get("cursors") or {}).get(task, 0)
    piece = ({"task": task, "offset": at, "records": [[0, 1.0, 0, 1]], "gone": 0}, LOG[at:])
    end = {"ended": True, "left": False, "cursors": {task: len(LOG)}, "ends": {task: len(LOG)}}
    return HonestAnswer([piece] if at < len(LOG) else [], end)


def _list(host: str, args: dict[str, Any]) -> HonestAnswer:
    rows = [[path, len(text), 1_700_000_000_000_000_000, None] for path, text in FILES.items()]
    wanted = [row for row in rows if args["what"] == "files" or str(row[0]).startswith("sub/")]
    return HonestAnswer(
        [({"rows": wanted}, b"")], {"root": f"{WORKDIR}/jobs/{JOB}/keep", "sharing": [host]}
    )


def _sums(host: str, args: dict[str, Any]) -> HonestAnswer:
    sums = {path: hashlib.sha256(text).hexdigest() for path, text in FILES.items()}
    return HonestAnswer([({"sum": [path, sums.get(path)]}, b"") for path, _ in args["files"]], {})


def _log_sum(host: str, args: dict[str, Any]) -> dict[str, Any]:
    text = LOG[args["first"] : args["end"]]
    return {"first": args["first"], "end": args["end"], "sha256": hashlib.sha256(text).hexdigest()}


def _environment(host: str, ready: bool) -> dict[str, Any]:
    made = (
        {"by": "uv", "packages": {"numpy": "1.26.4", "typing-extensions": "4.9.0"}}
        if ready
        else {"by": None, "packages": {}}
    )
    return {
        "name": "e1",
        "folder": f"{WORKDIR}/.envs/e1",
        "python": "/usr/bin/python3",
        "python_version": "3.11.2",
        "ready": ready,
        **made,
    }


def _make(host: str, _: Any) -> HonestAnswer:
    return HonestAnswer(
        [({"waiting": "/x.lock"}, b""), ({"line": "Resolved 2 packages"}, b"")],
        _environment(host, True),
    )


def _board(host: str, _: Any) -> HonestAnswer:
    return HonestAnswer(
        [({"port": 6006, "path": "/" + 32 * "5"}, b"")], {"code": 1, "said": "no more"}
    )


def _preflight() -> dict[str, Any]:
    return {
        "limits": {"open files": 1024, "processes": 95_000},
        "available_bytes": 1 << 33,
        "shared_memory": {"path": "/dev/shm", "writable": True, "free_bytes": 1 << 32},
        "temporary": {"path": "/tmp", "writable": True, "free_bytes": 1 << 32},
        "mount": {
            "source": "/dev/sda1",
            "point": "/",
            "type": "ext4",
            "options": ["rw", "relatime"],
        },
        "workdir_mode": 0o700,
        "quota": {"left_bytes": 1 << 40, "left_files": None, "over": False},
        "driver": "550.54.15",
        "nvidia_devices": 1,
        "logout": {"kills": False, "removes_ipc": False},
        "ephemeral_ports": 0,
    }


def _listen(host: str, args: dict[str, Any]) -> HonestAnswer:
    return HonestAnswer([({"ports": args.get("ports", [2222]), "taken": {}}, b"")], {})


def _measured(host: str, _: Any) -> dict[str, Any]:
    return {"ms": 0.2, "to_mbit_s": 940.0, "from_mbit_s": 930.0, "why": ""}


def _facts(host: str, _: Any) -> dict[str, Any]:
    return {
        "hostname": host,
        "user": "ml",
        "home": "/home/ml",
        "workdir": WORKDIR,
        "python": "/usr/bin/python3",
        "python_version": "3.11.2",
        "cores": 8,
        "free_disk_bytes": 1 << 40,
        "free_inodes": 1 << 20,
        "boot_id": "b",
        "clock": 1.0,
        "ssh_server_address": "192.0.2.1",
        "hosts_file_loopback": [],
        "resolved": {},
        "free_ports": [2222, 2223],
        "taken_ports": {"2224": "sshd"},
        "gpus": [
            {"index": 0, "name": "H200", "memory_mib": 143771, "used_mib": 0, "uuid": "GPU-1"}
        ],
        "gpu_error": None,
        "tensorflow": "2.21.0",
        "tf_keras": None,
        "keras": "3.15.0",
        "cpu_only": False,
        "preflight": completed(PreflightFacts, _preflight()),
        "rsync": "3.2.7",
        "environment": None,
        "proxies": ["http_proxy"],
        "preset": [],
        "keep": [
            {"path": "sub", "newest": 1.0, "checkpoint": "model.ckpt-1", "step": 1, "recorded": 1.0}
        ],
        "live_runs": [{"run": "r0", "who": "me@here", "started": 1.0}],
        "linger": None,
        "kill_user_processes": False,
        "problems": [],
        "version": "1",
    }


def _hello(host: str, _: Any) -> dict[str, Any]:
    plain = {
        "version": "1",
        "agent": "a1",
        "home": "/home/ml",
        "user": "ml",
        "boot_id": "b",
        "hostname": host,
    }
    more = {
        "python": "/usr/bin/python3",
        "python_version": "3.11.2",
        "clock": 1.0,
        "ssh_connection": "192.0.2.9 1 192.0.2.1 22",
        "pid": 7,
    }
    return {**plain, "workdir": WORKDIR, **more}


# Bit n stands for row n of the listing. Rows 1 and 3 are the files a.txt and sub/b.txt. Rows 0 and
# 2 are the top folder and the folder sub.
_NONE_STAGED = base64.b64encode(zlib.compress(bytes(1))).decode()
_LACKING = base64.b64encode(zlib.compress(bytes([0b1010]))).decode()
_FIRST_TWO = base64.b64encode(zlib.compress(bytes([0b11]))).decode()
_STAGING = f"{WORKDIR}/jobs/{JOB}/releases/.staging-x"
_VALUES: dict[str, Any] = {
    "hello": _hello,
    "probe": _facts,
    "ping": lambda host, args: {"clock": 1.0},
    "check.knock": lambda host, args: {"asked": len(args.get("links", ())), "failed": []},
    "check.measure": _measured,
    "lock": lambda host, args: {"held": True, "fence": 1},
    "release.state": lambda host, args: {"present": False},
    "release.begin": lambda host, args: {
        "staging": _STAGING,
        "missing": list(FILES),
        "linked": 0,
        "rsync": True,
    },
    "release.commit": lambda host, args: {"changed": []},
    "data.state": lambda host, args: {"digest": "0" * 64},
    "data.lack": lambda host, args: {
        "lacking": _LACKING,
        "lacking_bytes": 8,
        "staging": _STAGING,
        "staged": _NONE_STAGED,
        "folder_id": host,
    },
    "broadcast.sums": lambda host, args: {"leaves": hash_piece(FILES["a.txt"]).hex()},
    "data.held": lambda host, args: {"held": [[65535, _LACKING]], "folder_id": host},
    "broadcast.leaves": lambda host, args: {"wanted": _FIRST_TWO},
    "data.losing": lambda host, args: {"files": 0, "losing": 0},
    "data.commit": lambda host, args: {"digest": "0" * 64, "ok": True},
    "keep.begin": lambda host, args: {"folder": f"{WORKDIR}/jobs/{JOB}/.incoming"},
    "keep.place": lambda host, args: {"missing": []},
    "fetch.log_sum": _log_sum,
    "env.state": lambda host, args: _environment(host, False),
    "run.links": lambda host, args: {
        "asked": [other for other in HOSTS if other != host],
        "shut": [
            {"host": other, "task": "", "address": "192.0.2.1:2222", "why": "closed"}
            for other in HOSTS
            if other != host
        ],
    },
    "run.abort": lambda host, args: {"survivors": []},
    "run.stop": lambda host, args: {
        "survivors": [{"pid": 7, "state": "D", "command": "x"}],
        "seconds": 0.1,
        "messenger": False,
    },
    "run.known": lambda host, args: {"known": None},
    "run.resume": lambda host, args: {"resumed": True},
    "run.status": _run_standing,
    "runs": lambda host, args: [{**_run_standing(host), "run": RUN, "job": JOB}],
}
