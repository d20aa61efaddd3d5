"""Simulate how long two things take with many hosts: a client connects to all of them, and the
hosts tell each other a message (gossip).

    python benchmarks/simulator/fanout_simulator.py --hosts 100 300 1000 [--dead N] [--json]

The client connects with 32 threads. For each host, a thread first uses the client's processor,
which serves one thread at a time, and then waits for the host. The gossip begins when one minder
(the process that looks after a run on a host) learns a message. The minders then tell it to each
other by the schedule of `agent/mesh/gossip_schedule.py`. Dead hosts do not answer.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tfdeploy.agent import wire  # noqa: E402
from tfdeploy.agent.mesh.gossip_schedule import GossipSchedule, PeerContactState  # noqa: E402

THREADS = 32
OLD, NEW = "old", "new"
SETTLE_S = 0.01  # the shortest pause of a minder between two checks of its schedule
GIVEN_UP_S = 120.0  # the simulation ends after this simulated time


@dataclass(frozen=True)
class Costs:
    client_s: float = 0.0035  # seconds of the client's processor per connection
    # seconds that a thread waits for the host's handshakes and for the start of the host's agent
    host_s: float = 0.03
    # seconds for one exchange between two minders: TLS and a message each way
    exchange_s: float = 0.01
    timeout_s: float = 3.0  # seconds until an attempt to connect to a dead host fails


def connects_s(hosts: int, costs: Costs) -> float:
    """Return the seconds until all hosts are connected."""
    free = [0.0] * min(THREADS, hosts)
    processor = last = 0.0
    for _ in range(hosts):
        begun = max(heapq.heappop(free), processor)
        processor = begun + costs.client_s
        last = processor + costs.host_s
        heapq.heappush(free, last)
    return max(last, *free)


class News:
    """The spread of one message by gossip.

    All minders begin with the same state. At time 0 one minder learns the message.
    """

    def __init__(self, hosts: int, dead: int, costs: Costs, seed: int) -> None:
        random.seed(seed)  # The schedule uses Python's global generator of random numbers.
        self._costs = costs
        self._hosts, self._alive = range(hosts), hosts - dead
        address = wire.MeshHost("", "", 0)
        self._peers = [
            {str(other): PeerContactState(address, OLD) for other in self._hosts if other != host}
            for host in self._hosts
        ]
        self._number = [
            {id(peer): int(name) for name, peer in peers.items()} for peers in self._peers
        ]
        self._schedules = [GossipSchedule(peers, -30.0) for peers in self._peers]
        self._knows: dict[int, float] = {}
        self._due = [float("inf")] * hosts
        # A heap of events (time, order, host, peer). If the peer is -1, the host checks its
        # schedule at that time.
        self._events: list[tuple[float, int, int, int]] = []
        self.exchanges = 0

    def run(self) -> dict[int, float]:
        """Return {host: the time at which it learned the message}."""
        self._learn(0, 0.0)
        while self._events and len(self._knows) < self._alive and self._events[0][0] < GIVEN_UP_S:
            now, _, host, other = heapq.heappop(self._events)
            if other >= 0:
                self._spoke(host, other, now)
                self._schedule_poll(host, now)
            elif now >= self._due[host]:
                self._due[host] = float("inf")
                self._send(host, now)
        return self._knows

    def _at(self, when: float, host: int, other: int = -1) -> None:
        heapq.heappush(self._events, (when, len(self._events) + self.exchanges, host, other))

    def _schedule_poll(self, host: int, when: float) -> None:
        if when < self._due[host]:
            self._due[host] = when
            self._at(when, host)

    def _learn(self, host: int, now: float) -> None:
        if host not in self._knows:
            self._knows[host] = now
            self._schedules[host].schedule_state_sending(False, now)
            self._schedule_poll(host, now)

    def _digest(self, host: int) -> str:
        return NEW if host in self._knows else OLD

    def _send(self, host: int, now: float) -> None:
        schedule, concerned = self._schedules[host], list(self._peers[host].values())
        chosen = schedule.choose_due_peers(concerned, self._digest(host), now)
        for peer in chosen:
            peer.busy, peer.tried = True, now
            other = self._number[host][id(peer)]
            self.exchanges += 1
            self._at(
                now + (self._costs.exchange_s if other < self._alive else self._costs.timeout_s),
                host,
                other,
            )
        pause = (
            SETTLE_S if chosen else schedule.seconds_until_due(concerned, self._digest(host), now)
        )
        if pause < GIVEN_UP_S:
            self._schedule_poll(host, now + max(pause, SETTLE_S))

    def _spoke(self, host: int, other: int, now: float) -> None:
        mine = self._peers[host][str(other)]
        mine.busy = False
        if other >= self._alive:
            self._schedules[host].record_failure(mine, False, now)
            return
        if NEW in (self._digest(host), self._digest(other)):
            self._learn(host, now)
            self._learn(other, now)
        theirs = self._peers[other][str(host)]
        for peer in (mine, theirs):
            peer.digest, peer.last_message = self._digest(host), now


def row_of(hosts: int, dead: int, seed: int, costs: Costs) -> dict[str, Any]:
    news = News(hosts, dead, costs, seed)
    knew = sorted(news.run().values())
    return {
        "hosts": hosts,
        "dead": dead,
        "connects_s": round(connects_s(hosts, costs), 2),
        "news_median_s": round(knew[len(knew) // 2], 3),
        "news_last_s": round(knew[-1], 3),
        "not_told": hosts - dead - len(knew),
        "exchanges_per_host": round(news.exchanges / hosts, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--dead", type=int, default=0, help="of them")
    parser.add_argument("--client-ms", type=float, default=Costs.client_s * 1000)
    parser.add_argument("--host-ms", type=float, default=Costs.host_s * 1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one object a line")
    asked = parser.parse_args()
    costs = Costs(client_s=asked.client_ms / 1000, host_s=asked.host_ms / 1000)
    rows = [row_of(hosts, asked.dead, asked.seed, costs) for hosts in asked.hosts]
    for row in rows:
        print(
            json.dumps(row)
            if asked.json
            else ", ".join(f"{name} {value}" for name, value in row.items()),
            flush=True,
        )
    return 1 if any(row["not_told"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
