"""Test the diagnosis of a task that stands still. Each case gives facts about all tasks and the
findings that are expected from them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.agent.health.activity import LifeSigns
from tfdeploy.agent.health.diagnose import Finding, StallFacts, diagnose, find_late_tasks
from tfdeploy.agent.wire import Peer
from tfdeploy.model.modes import rules_of

PEERS = {
    peer.task: peer
    for peer in (
        Peer(task="ps:0", role="ps", host="n1", serves=True, address="10.0.0.1:2222"),
        Peer(task="worker:0", role="worker", host="n2", deciding=True, address="10.0.0.2:2222"),
        Peer(task="worker:1", role="worker", host="n3", address="10.0.0.3:2222"),
        Peer(task="worker:2", role="worker", host="n4", address="10.0.0.4:2222"),
    )
}
BUSY, STILL = LifeSigns(still_s=0.5), LifeSigns(still_s=400.0)
ALL_STILL = {"ps:0": STILL, "worker:0": STILL, "worker:1": STILL, "worker:2": STILL}
KILLED = {"outcome": "killed", "signal": 9, "time": 1.0}
DONE = {"outcome": "succeeded", "time": 1.0, "up": True}
WAITS = LifeSigns(still_s=40.0, waits=("worker:1",), waiting_s=30.0)
ALONE = Finding("no output, no CPU use, no traffic, and no visible problem in other tasks", True)


def facts(mode: str = "async", host: str = "n2", **given: Any) -> StallFacts:
    """Return the facts from which host n2 diagnoses its task worker:0.

    `signs` is {task: its signs of life}. Tasks that are not in `signs` are busy.
    """
    signs = {
        "ps:0": BUSY,
        "worker:0": BUSY,
        "worker:1": BUSY,
        "worker:2": BUSY,
        **given.pop("signs", {}),
    }
    signs = {task: sign for task, sign in signs.items() if sign is not None}
    given = {"host": host, "lockstep": rules_of(mode).lockstep, **given}  # type: ignore[arg-type]
    return StallFacts(after_s=300.0, peers=PEERS, signs=signs, **given)


def waits(*blamed: str) -> Finding:
    return Finding("waits for " + "; ".join(blamed), False)


FROZEN_1 = "worker:1 on n3: frozen: its process 42 is stopped; on n3 `kill -CONT 42` continues it"
CASES: dict[str, tuple[StallFacts, Finding | None]] = {
    "all is well": (facts(), None),
    "not yet for long enough": (facts(signs={"worker:0": LifeSigns(still_s=299.0)}), None),
    "just starting": (facts(signs={"worker:0": LifeSigns(still_s=400.0, starting=True)}), None),
    "stands still alone, asynchronous": (facts(signs={"worker:0": STILL}), ALONE),
    "waits for slower ones that compute, synchronous": (
        facts("sync", signs={"worker:0": STILL}),
        None,
    ),
    "waits for slower ones that compute, mirrored": (
        facts("mirrored", signs={"worker:0": STILL, "worker:1": STILL}),
        None,
    ),
    "all stand still, synchronous": (facts("sync", signs=ALL_STILL), ALONE),
    "only the servers are busy": (facts("sync", signs={**ALL_STILL, "ps:0": BUSY}), ALONE),
    "frozen itself": (
        facts(signs={"worker:0": LifeSigns(still_s=400.0, stopped=7)}),
        Finding("frozen: its process 7 is stopped; on n2 `kill -CONT 7` continues it", True),
    ),
    "frozen for a moment": (facts(signs={"worker:0": LifeSigns(still_s=3.0, stopped=7)}), None),
    "a frozen server": (
        facts(host="n1", signs={"ps:0": LifeSigns(still_s=400.0, stopped=7)}),
        Finding("frozen: its process 7 is stopped; on n1 `kill -CONT 7` continues it", True),
    ),
    "a server that waits for work": (facts(host="n1", signs=ALL_STILL), None),
    "another is frozen": (
        facts("sync", signs={**ALL_STILL, "worker:1": LifeSigns(still_s=400.0, stopped=42)}),
        waits(FROZEN_1),
    ),
    "another was killed": (
        facts("sync", signs={**ALL_STILL, "worker:1": None}, ended={"worker:1": KILLED}),
        waits("worker:1 on n3: it has ended (killed by signal 9)"),
    ),
    "another is done, synchronous": (
        facts("sync", signs={**ALL_STILL, "worker:1": None}, ended={"worker:1": DONE}),
        waits("worker:1 on n3: it has ended (succeeded)", "give all workers equally many steps"),
    ),
    "another is done, asynchronous": (
        facts(signs={"worker:0": STILL, "worker:1": None}, ended={"worker:1": DONE}),
        ALONE,
    ),
    "another starts again": (
        facts(
            "sync",
            signs={**ALL_STILL, "worker:1": None},
            ended={"worker:1": {**KILLED, "final": False}},
        ),
        waits("worker:1 on n3: it ended (killed by signal 9) and starts again"),
    ),
    "another has started again": (
        facts("sync", signs=ALL_STILL, ended={"worker:1": {**KILLED, "final": False}}),
        ALONE,
    ),
    "a server is cut off": (
        facts(
            signs={"ps:0": None, "worker:0": STILL},
            hosts={"n1": "no answer", "n3": "open", "n4": "open"},
        ),
        waits("ps:0 on n1: n1 cannot be reached from n2 (no answer)"),
    ),
    "a server's host answers that nobody listens on the mesh": (
        facts(signs={"worker:0": STILL}, hosts={"n1": "closed"}),
        ALONE,
    ),
    "this host is cut off": (
        facts(signs={"worker:0": STILL}, hosts=dict.fromkeys(("n1", "n3", "n4"), "no answer")),
        waits("all other hosts: none of these hosts can be reached from n2 (no answer)"),
    ),
    "a firewall before a task's port": (
        facts(signs={"worker:0": STILL}, hosts={"n1": "open"}, port_answers={"ps:0": "no answer"}),
        waits("ps:0 on n1: its port 2222 cannot be reached from n2 (no answer)"),
    ),
    "a server does not listen any more": (
        facts(signs={"worker:0": STILL, "ps:0": LifeSigns(still_s=9.0, listens=False)}),
        waits("ps:0 on n1: its port 2222 is closed: no process listens there"),
    ),
    "a server's port is closed": (
        facts(signs={"worker:0": STILL, "ps:0": None}, port_answers={"ps:0": "closed"}),
        waits("ps:0 on n1: its port 2222 is closed: no process listens there"),
    ),
    "a worker that need not listen": (
        facts(signs={"worker:0": STILL}, port_answers={"worker:1": "closed"}),
        ALONE,
    ),
    "says it waits, and the port is closed": (
        facts(signs={"worker:0": WAITS}, port_answers={"worker:1": "closed"}),
        waits("worker:1 on n3: its port 2222 is closed: no process listens there"),
    ),
    "says it waits, and others compute, synchronous": (
        facts(
            "sync",
            signs={"worker:0": WAITS, "worker:1": STILL},
            port_answers={"worker:1": "closed"},
        ),
        waits("worker:1 on n3: its port 2222 is closed: no process listens there"),
    ),
    "says it waits, and that one has ended": (
        facts(signs={"worker:0": WAITS, "worker:1": None}, ended={"worker:1": DONE}),
        waits("worker:1 on n3: it has ended (succeeded)", "give all workers equally many steps"),
    ),
    "says it waits, and that one imports TensorFlow": (facts(signs={"worker:0": WAITS}), None),
    "says it waits, and that one just starts": (
        facts(signs={"worker:0": WAITS, "worker:1": LifeSigns(still_s=40.0, starting=True)}),
        None,
    ),
    "says it waits, not for long": (
        facts(signs={"worker:0": LifeSigns(still_s=12.0, waits=("worker:1",), waiting_s=12.0)}),
        None,
    ),
    "says it waits for one that stands still and answers": (
        facts(signs={"worker:0": WAITS, "worker:1": STILL}, port_answers={"worker:1": "open"}),
        Finding("waits for worker:1 on n3, which can be reached and does not answer", True),
    ),
    "a name that means this host": (
        facts(signs={"worker:0": STILL}, loopback={"ps:0": "n1 resolves to 127.0.1.1"}),
        waits("ps:0 on n1: wrong address: on n2, n1 resolves to 127.0.1.1 (loopback)"),
    ),
    "a proxy": (
        facts(signs={"worker:0": STILL}, proxies={"worker:0": "http_proxy"}),
        Finding(
            "http_proxy is set in its environment, and "
            "no_proxy does not list the other tasks", True),
    ),
    "a disk that does not answer": (
        facts(signs={"worker:0": LifeSigns(still_s=400.0, disk=9)}),
        Finding("its process 9 waits for a disk (state D)", True),
    ),
    "another stood still first": (
        facts("sync", signs={**ALL_STILL, "worker:1": LifeSigns(still_s=440.0)}),
        Finding("probably waits for worker:1 on n3, which stalled earlier", False),
    ),
    "many to blame": (
        facts(
            "sync",
            signs={
                task: LifeSigns(still_s=400.0, stopped=1) if task != "worker:0" else STILL
                for task in PEERS
            },
        ),
        waits(*(
            FROZEN_1.replace("worker:1 on n3", at).replace("42", "1").replace("n3", at[-2:])
            for at in ("ps:0 on n1", "worker:1 on n3", "worker:2 on n4")
        )),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_findings(case: str) -> None:
    given, finding = CASES[case]
    findings = diagnose(given)
    assert findings == (
        {} if finding is None else {next(iter(findings), "nothing was found"): finding}
    )
    assert set(findings) <= find_late_tasks(given)


def test_only_own_tasks_are_diagnosed() -> None:
    assert set(diagnose(facts("sync", signs=ALL_STILL))) == {"worker:0"}
    assert set(diagnose(facts("sync", host="n4", signs=ALL_STILL))) == {"worker:2"}
