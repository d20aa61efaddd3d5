"""Test that the join of what two minders know is commutative, associative, idempotent and monotone.

A minder is the process that looks after a run on a host. The test generates 2,000 pairs and triples
of random knowledge, or TFDEPLOY_SOAK_MERGES of them in `make soak`. To repeat an earlier test, set
TFDEPLOY_MERGE_SEED to the seed of that test.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.agent.mesh import bounded_json, shared_state
from tfdeploy.agent.mesh.shared_state import ABORT_KINDS, KnownRunState

MERGES = int(os.environ.get("TFDEPLOY_SOAK_MERGES", "2000"))
SEED = int(os.environ.get("TFDEPLOY_MERGE_SEED", "0")) or random.randrange(1, 1 << 30)
HOSTS = ["n1", "n2", "n3"]
TASKS = ["worker:0", "worker:1", "ps:0"]
PEERS = {
    task: wire.Peer(task=task, role=task.split(":")[0], host=host)
    for task, host in zip(TASKS, HOSTS, strict=True)
}
PART = wire.HostPart(
    run="r1",
    job="j",
    mode="async",
    host="n1",
    plan_digest="d",
    release="c",
    peers=list(PEERS.values()),
)
# The generated times are only these few, so that equal times occur often.
TIMES = [0, 0.0, -0.0, 1, 1.0, 2.5, 1e9, 1763719000.123]
COUNTS = [0, 1, 2, 10**6]
TEXTS = ["", "a", "b", "\u8bad", "x" * 400, "\ud800", "[{"]


def generated(chance: random.Random) -> dict[str, Any]:
    """Return a random valid value for the field `known` of a message. The value may lack fields,
    have additional fields, or have an integer where a float is usual.
    """
    some = chance.choice
    said: dict[str, Any] = {"committed": some([True, False, None]), "later": [1]}
    if some([True, False]):
        said["abort"] = _some_of(chance, {
            "kind": some(ABORT_KINDS), "reason": some(TEXTS), "time": some(TIMES)
        }, {
            "host": some(HOSTS), "grace_s": some(TIMES[:-1]), "more": some(TEXTS)
        })  # fmt: skip
    ended = {}
    for task in TASKS[: chance.randrange(4)]:
        ended[task] = _some_of(chance, {"outcome": some(wire.OUTCOMES), "time": some(TIMES)}, {
            "attempt": some(COUNTS), "round": some(COUNTS), "final": some([True, False, None]),
            "again": some([True, False]), "host": PEERS[task].host, "up": some([True, False]),
            "exit_code": some([0, 1, -9]), "signal": some([0, 9]), "reason": some(TEXTS),
            "more": some([1, 1.0, True]),
        })  # fmt: skip
    said["ended"] = ended
    if some([True, False]):
        said["round"] = _some_of(chance, {
            "n": some(COUNTS), "time": some(TIMES), "task": some(TASKS), "count": some(COUNTS),
            "quick": some(COUNTS), "delay_s": some(TIMES[:-1]),
        }, {"reason": some(TEXTS)})  # fmt: skip
    said["stands"] = {
        host: [some(COUNTS), chance.randrange(4)] for host in HOSTS[: chance.randrange(4)]
    }
    said["unminded"] = {host: [some(COUNTS), some(TIMES)] for host in HOSTS[: chance.randrange(4)]}
    said["decided"] = some([None, *TIMES])
    return said


def _some_of(chance: random.Random, needed: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {**needed, **{name: value for name, value in more.items() if chance.random() < 0.5}}


def heard(said: dict[str, Any]) -> KnownRunState:
    return shared_state.from_json(bounded_json.parse(json.dumps(said).encode("ascii")), PART)


def same(one: KnownRunState, other: KnownRunState) -> bool:
    """Return whether two values are equal and have the same JSON text. The text matters because
    hosts compare digests of it.
    """
    return one == other and one.digest() == other.digest()


def test_joining_does_not_depend_on_order_grouping_or_repetition() -> None:
    chance = random.Random(SEED)
    pool = [heard(generated(chance)) for _ in range(min(MERGES, 3000))]
    for number in range(MERGES):
        if number % len(pool) == 0:
            chance.shuffle(pool)
        one, two, three = chance.choice(pool), pool[number % len(pool)], chance.choice(pool)
        both = one.join(two)
        assert same(both, two.join(one)), (SEED, number, one, two)
        assert same(both.join(three), one.join(two.join(three))), (SEED, number, one, two, three)
        assert (
            same(one.join(one), one) and same(both.join(one), both) and same(both.join(two), both)
        ), (SEED, number, one, two)
        if number % 20 == 0:
            assert same(heard(both.as_json()), both), (SEED, number, one, two)
