"""Test that all minders of a run end up with the same knowledge, in whatever order and however
often they inform each other. A minder is the process that looks after a run on a host.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.listener import MAX_MESSAGE_BYTES
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.minder.store import StateStore
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.wire import HostPart, Peer

PEERS = [
    Peer(task="worker:0", role="worker", host="n1", deciding=True),
    Peer(task="worker:1", role="worker", host="n2"),
    Peer(task="ps:0", role="ps", host="n3"),
]
PART = HostPart(
    run="r1", job="j", mode="async", host="n1", plan_digest="d", release="c", peers=PEERS
)
ABORT = {"kind": "abort", "reason": "a", "host": "n1", "time": 2.0}
ROUND = {"n": 2, "time": 1.0, "task": "worker:1", "count": 1, "quick": 1, "delay_s": 1.0}
PIECES = [
    KnownRunState(committed=True),
    KnownRunState(abort=ABORT),
    KnownRunState(abort=dict(ABORT, reason="b")),
    KnownRunState(abort=dict(ABORT, reason="c", time=1.0)),
    KnownRunState(ended={"worker:1": {"outcome": "failed", "time": 3.0}}),
    KnownRunState(
        ended={
            "worker:1": {"outcome": "lost", "time": 2.5},
            "ps:0": {"outcome": "stopped", "time": 4.0},
        }
    ),
    KnownRunState(decided=6.0),
    KnownRunState(decided=5.0),
]


def test_join_does_not_care_for_order_or_repetition() -> None:
    results = set()
    for order in itertools.islice(itertools.permutations(PIECES), 0, None, 17):
        joined = KnownRunState()
        for piece in order + order[:2]:
            before = joined
            joined = joined.join(piece)
            assert joined.join(before) == joined, "monotone"
        results.add(joined.digest())
    assert len(results) == 1
    assert (
        joined.abort == dict(ABORT, reason="c", time=1.0)
        and joined.ended["worker:1"]["outcome"] == "lost"
    )


def test_it_survives_the_wire() -> None:
    for piece in PIECES:
        assert shared_state.from_json(json.loads(json.dumps(piece.as_json())), PART) == piece


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        [],
        "x",
        {"ended": []},
        {"ended": {"worker:7": {"outcome": "failed", "time": 1.0}}},
        {"ended": {"worker:1": {"outcome": "nice", "time": 1.0}}},
        {"ended": {"worker:1": {"outcome": "failed"}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": "now"}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": 1.0, "reason": {"a": 1}}}},
        {"abort": {"kind": "because", "time": 1.0}},
        {"abort": 3},
        {"decided": "yes"},
        {"decided": float("nan")},
        {"decided": 1e15},
        {"committed": "no"},
        {"abort": {"kind": "stop", "time": 1.0}},
        {"abort": dict(ABORT, time=float("inf"))},
        {"abort": dict(ABORT, host="n9")},
        {"abort": dict(ABORT, grace_s=float("nan"))},
        {"abort": dict(ABORT, grace_s=-1)},
        {"abort": dict(ABORT, kind=["stop"])},
        {"ended": {"worker:1": {"outcome": "failed", "time": float("nan")}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": -1e13}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": 1.0, "host": "n1"}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": 1.0, "attempt": 1.5}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": 1.0, "exit_code": 10**400}}},
        {"ended": {"worker:1": {"outcome": "failed", "time": 1.0, "final": 1}}},
        {"round": dict(ROUND, delay_s=float("nan"))},
        {"round": dict(ROUND, delay_s=10**400)},
        {"round": dict(ROUND, task="worker:9")},
        {"round": dict(ROUND, task=[])},
        {"stands": {"n9": [1, 1]}},
        {"stands": {"n1": [1, 9]}},
        {"stands": {"n1": [1]}},
        {"stands": []},
        {"unminded": {"n9": [1, 1.0]}},
        {"unminded": {"n1": [1, float("nan")]}},
        {"unminded": {"n1": [-1, 1.0]}},
        {"unminded": {"n1": 1}},
    ],
)
def test_nonsense_is_refused(nonsense: Any) -> None:
    with pytest.raises(ValueError):
        shared_state.from_json(nonsense, PART)


def test_long_reasons_are_cut() -> None:
    said = {"abort": dict(ABORT, reason="x" * 100000)}
    assert len(shared_state.from_json(said, PART).abort["reason"]) == 300


def test_a_clock_that_is_wrong_makes_no_host_mute() -> None:
    for said, heard in ((-7200, 0.0), (1e12, 253402300799.0), (-0.0, 0.0)):
        decided = shared_state.from_json({"decided": said}, PART).decided
        assert (decided, str(decided)) == (heard, str(heard))


@pytest.mark.parametrize("letter", ["r", "\u8bad"])
def test_a_thousand_failed_tasks_fit_into_a_message(letter: str) -> None:
    fields = {
        "outcome": "failed",
        "time": 1763719000.123,
        "host": "h" * 20,
        "up": True,
        "exit_code": 1,
        "reason": letter * 300,
    }
    known = KnownRunState(
        committed=True, abort=ABORT, ended={f"worker:{index}": fields for index in range(1000)}
    )
    assert len(json.dumps(known.as_json())) < MAX_MESSAGE_BYTES


def ended(**rows: Any) -> KnownRunState:
    return KnownRunState(ended={task.replace("_", ":"): row for task, row in rows.items()})


GOOD = {"outcome": "succeeded", "time": 10.0, "up": True}
BAD = {"outcome": "failed", "time": 5.0, "exit_code": 1}


def test_the_earliest_death_is_the_cause() -> None:
    death = shared_state.first_fatal_death(
        PEERS, ended(worker_0=dict(BAD, time=7.0), worker_1=BAD, ps_0=dict(BAD, time=6.0))
    )
    assert death is not None and (death["task"], death["host"]) == ("worker:1", "n2")


def test_a_death_after_the_decision_is_none_and_before_it_is_one() -> None:
    assert (
        shared_state.first_fatal_death(PEERS, ended(worker_0=GOOD, worker_1=dict(BAD, time=11.0)))
        is None
    )
    assert shared_state.first_fatal_death(PEERS, ended(worker_0=GOOD, worker_1=BAD)) is not None
    assert (
        shared_state.first_fatal_death(PEERS, ended(worker_1=dict(BAD, outcome="stopped"))) is None
    )


def test_a_broken_file_of_what_was_known_stops_no_minder(tmp_path: Path) -> None:
    host_dir = tmp_path / "j" / "runs" / "r1" / "hosts" / "n1"
    host_dir.mkdir(parents=True)
    (host_dir / "knowledge.json").write_text('{"committed": true, "decided": NaN}')
    book = StateStore(
        RunPaths(str(host_dir)),
        HostPart(
            run="r1", job="j", mode="async", host="n1", plan_digest="d", release="c", peers=PEERS
        ),
    )
    book.load()
    assert book.known == KnownRunState() and "forgot" in (host_dir / "journal").read_text()
