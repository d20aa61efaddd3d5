"""Test a broadcast (hosts pass data on to each other) in which five of the eight hosts send false
reports.

Each lying host must fail within a time limit. The other hosts must get all data and keep no lock.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults.served import SILENT, Item, Lie, ServedFleet
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.agent import bitmap
from tfdeploy.errors import TfdeployError
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import DataSource, Job
from tfdeploy.operations.broadcast import (
    broadcast,
    data_set_sending,
    feeder,
    member_session,
    stalled_hosts,
)
from tfdeploy.operations.connecting import Connecting
from tfdeploy.operations.sending.deletions import never_confirm
from tfdeploy.operations.sending.send_code import SyncResult
from tfdeploy.operations.sync import sync_job

LIARS, OTHERS = ("n1", "n2", "n3", "n4", "n5"), ("n6", "n7", "n8")
TOTAL = 3 << 20
STILL_S, CALL_S, LOOK_S = 4.0, 2.0, 6.0
# The limit in seconds for a whole sync. It is the sum of the timeouts of three phases that follow
# each other, plus a margin for a busy machine. A sync that waits for the liars for ever exceeds any
# limit.
WITHIN_S = STILL_S + LOOK_S + CALL_S + 24.0
DEAF: dict[str, list[Item]] = {
    f"broadcast.{verb}": [{"value": {}}] for verb in ("feeds", "roots", "put")
}
DEAF["broadcast.leaves"] = [{"value": {"wanted": bitmap.pack(b"\xff" * 32)}}]
JOIN = "broadcast.join"


def without_progress(verb: str, item: Item) -> Item | None:
    """Drop all reports of the member except the report with the number of its port."""
    return item if verb != JOIN or "port" in item else None


def nothing(verb: str, item: Item) -> Item | None:
    return None if verb == JOIN else item


def receives() -> Iterator[Item]:
    return ({"have": 0, "received": count, "stripes": [0]} for count in itertools.count(1))


def creeps() -> Iterator[Item]:
    return ({"have": count, "received": count, "stripes": [count]} for count in itertools.count(1))


def has_all() -> Iterator[Item]:
    return itertools.repeat({"have": TOTAL, "received": TOTAL, "stripes": [TOTAL]})


def accuses() -> Iterator[Item]:
    return ({"failed": [name, "wrong", "x"]} for name in itertools.cycle((*LIARS, *OTHERS)))


LIES = {
    "it takes no part": Lie(items=nothing),
    "who feeds it is not heard": Lie({"broadcast.feeds": SILENT}, without_progress),
    "its sums are not heard": Lie({"broadcast.leaves": SILENT}, without_progress),
    "its pieces are not heard": Lie({"broadcast.put": SILENT}, without_progress),
    "it receives and has nothing": Lie(DEAF, without_progress, {JOIN: receives}),
    "it has a byte more, each time": Lie(DEAF, without_progress, {JOIN: creeps}),
    "it has all, and feeds nobody": Lie(DEAF, without_progress, {JOIN: has_all}),
    "all others send wrong pieces": Lie({}, without_progress, {JOIN: accuses}, pause_s=0.0),
    "its end is not heard": Lie({"data.commit": SILENT}),
    "what it lacks is not heard": Lie({"data.lack": SILENT}),
}
IN_EACH_RUN = ("it receives and has nothing", "it has all, and feeds nobody")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    served_fleet = ServedFleet(tmp_path_factory.mktemp("served"), (*LIARS, *OTHERS))
    yield served_fleet
    served_fleet.end()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    monkeypatch.setattr(stalled_hosts, "STALL_TIMEOUT_S", STILL_S)
    # With these lies, each call is answered. On a busy machine, an honest host may answer late.
    if lie in IN_EACH_RUN:
        return
    for module, name, seconds in (
        (broadcast, "JOIN_TIMEOUT_S", CALL_S),
        (member_session, "CALL_S", CALL_S),
        (feeder, "PUT_S", CALL_S),
        (data_set_sending, "LISTING_TIMEOUT_S", LOOK_S),
    ):
        monkeypatch.setattr(module, name, seconds)


def make_small_job(folder: Path) -> Job:
    for name, content in (("code/train.py", b"print(1)\n"), ("data/a", os.urandom(TOTAL))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    data = {"digits": DataSource(path=str(folder / "data"))}
    return Job(
        name="j", mode="async", code=str(folder / "code"), command=("python", "train.py"), data=data
    )


def lies(lie: str) -> Any:
    return pytest.param(
        lie, id=lie.replace(" ", "-"), marks=[] if lie in IN_EACH_RUN else pytest.mark.long
    )


@pytest.mark.fault("59 five of eight members of a broadcast lie")
@pytest.mark.parametrize("lie", [lies(lie) for lie in LIES])
def test_honest_hosts_get_all_data_and_keep_no_lock(
    fleet: ServedFleet, tmp_path: Path, lie: str
) -> None:
    job, collected, watch = (
        make_small_job(tmp_path),
        dict[str, SyncResult | TfdeployError](),
        Stopwatch(),
    )
    fleet.lies = dict.fromkeys(LIARS, LIES[lie])
    holder: Any = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}

    def sync() -> None:
        connecting = Connecting(fleet, fleet.hosts)
        collected.update(
            sync_job(
                fleet,
                fleet.hosts,
                job,
                holder,
                None,
                lambda event: None,
                never_confirm,
                Inventory(fleet.hosts),
                connecting,
            )
        )

    syncing = threading.Thread(target=sync, daemon=True)
    syncing.start()
    wanted = (tmp_path / "data/a").read_bytes()
    try:
        wait_for(
            lambda: all(
                is_there(fleet, host, wanted) and not is_locked(fleet, host) for host in OTHERS
            ),
            WITHIN_S,
            "the others have all and are not locked",
        )
        syncing.join(WITHIN_S)
    finally:
        fleet.lies = {}
        fleet.end()
    assert not syncing.is_alive(), "the sync does not end"
    print(f"{lie}: {watch.seconds:.1f} s")
    assert all(isinstance(collected[host], SyncResult) for host in OTHERS), collected
    # If a host falsely claims to have all files, tfdeploy cannot notice this, because it believes
    # what a host says about its own files.
    if lie != "it has all, and feeds nobody":
        assert all(isinstance(collected[host], TfdeployError) for host in LIARS), collected


def is_there(fleet: ServedFleet, host: str, wanted: bytes) -> bool:
    place = fleet.workdir(host) / "j/data/digits/a"
    return place.exists() and place.read_bytes() == wanted


def is_locked(fleet: ServedFleet, host: str) -> bool:
    return any((fleet.workdir(host) / "j/locks").glob("*.lock"))
