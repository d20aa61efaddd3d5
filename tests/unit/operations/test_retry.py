"""Test commands that must reach every host, such as `stop`: how often they retry a host that is
slow, that does not answer, or that refuses.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tfdeploy.errors import HostFailed, HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.operations.retry import each_with_retries

HOSTS = tuple(
    Host(name=name, address="10.0.0.1")
    for name in ("good", "slow", "lost", "dead", "refused", "broken")
)
RETRIES = {"slow": 8, "lost": 1, "dead": 1, "refused": 0}


class Fleet:
    """A fake fleet. `first_answers` is {host: number of the first call that it answers}."""

    def __init__(self, **first_answers: int) -> None:
        self.at, self.asked = first_answers, Counter[str]()

    def each(
        self, hosts: Any, action: Any, *, on_done: Any = None, waits: bool = False
    ) -> dict[str, Any]:
        return {host.name: self._one(host.name) for host in hosts}

    def _one(self, name: str) -> Any:
        self.asked[name] += 1
        if name == "broken":
            return HostFailed("no", where=name)
        if self.asked[name] < self.at.get(name, 1):
            return HostUnreachable("no word", where=name, retries=RETRIES[name])
        return self.asked[name]


def test_slow_host_is_retried_until_it_answers_and_others_only_if_useful() -> None:
    fleet, retried = Fleet(slow=5, lost=2, dead=99, refused=99), []
    by_name: dict[str, int | TfdeployError] = each_with_retries(
        fleet, HOSTS, lambda session: 0, on_retry=lambda bad: retried.append(sorted(bad))
    )
    assert list(by_name) == [host.name for host in HOSTS]
    assert fleet.asked == {"good": 1, "slow": 5, "lost": 2, "dead": 2, "refused": 1, "broken": 1}
    assert (by_name["slow"], by_name["lost"]) == (5, 2)
    assert isinstance(by_name["dead"], HostUnreachable) and isinstance(
        by_name["refused"], HostUnreachable
    )
    assert retried == [["dead", "lost", "slow"], ["slow"], ["slow"], ["slow"]]


@pytest.mark.parametrize("patience_s", [0.0, -1.0])
def test_nothing_is_retried_after_time_limit(patience_s: float) -> None:
    fleet = Fleet(slow=5)
    each_with_retries(fleet, HOSTS, lambda session: 0, patience_s=patience_s)
    assert set(fleet.asked.values()) == {1}
