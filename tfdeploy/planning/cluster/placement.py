"""Roles -> tasks on hosts, with their GPUs: how many of each, where, and why there. Ports come later.

Counts are the contract's: one ps per host of its role, one worker per GPU of each worker host (one where there is
none; one with all of them in mirrored), one chief, one evaluator; the job's `roles` and --ps/--workers say otherwise.
Round-robin, in inventory order; neighbours are counted so and then numbered host by host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdeploy.errors import ConfigError, Refused, TfdeployError
from tfdeploy.model.cluster import ROLES
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.modes import Rules
from tfdeploy.planning.cluster import gpus
from tfdeploy.planning.cluster.role_requests import RoleRequest

ANY_NUMBER = 1 << 30


@dataclass(frozen=True)
class Seat:
    """One task, its host and its GPUs."""

    role: str
    index: int
    host: str
    gpus: tuple[int, ...]
    why: str

    @property
    def task(self) -> str:
        return f"{self.role}:{self.index}"


def place(
    wished: Mapping[str, RoleRequest], hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], first: Mapping[str, str]
) -> tuple[Seat, ...]:
    """Every task with its host, in the order of ROLES. `first`: role -> host that must get the role's task 0.

    Raises Refused when GPUs are asked for and not there, and when a role with tasks names no host.
    """
    free = {name: list(gpus.usable(hosts[name], facts[name])) for name in _with_gpus(wished)}
    had = {name: len(free[name]) for name in free}
    seats: dict[str, tuple[Seat, ...]] = {}
    for role in sorted(wished, key=lambda role: _turn(wished[role])):
        seats[role] = _Round(wished[role], hosts, facts, free, had, first.get(role)).seats()
    return tuple(seat for role in ROLES for seat in seats.get(role, ()))


def decider(seats: Sequence[Seat]) -> Seat:
    """The task that writes the checkpoints, and decides in most modes: the chief where there is one, else worker:0."""
    chiefs = [seat for seat in seats if seat.role == "chief"]
    return (chiefs or [seat for seat in seats if seat.role == "worker"])[0]


def deciding(mode: Rules, seats: Sequence[Seat]) -> tuple[str, ...]:
    """The tasks with whose success the run has succeeded."""
    if mode.all_decide:
        return tuple(seat.task for seat in seats if seat.role in ("chief", "worker"))
    return (decider(seats).task,)


def _turn(wish: RoleRequest) -> tuple[bool, bool, int]:
    """Who picks GPUs first: the chief, then roles whose `gpus` the job names, then workers, then evaluators."""
    return (wish.role != "chief", not wish.gpus, ROLES.index(wish.role))


def _with_gpus(wished: Mapping[str, RoleRequest]) -> list[str]:
    return list(dict.fromkeys(name for wish in wished.values() if wish.role != "ps" for name in wish.hosts))


class _Round:
    """The placing of one role: takes GPUs out of `free` as it goes."""

    def __init__(
        self,
        wish: RoleRequest,
        hosts: Mapping[str, Host],
        facts: Mapping[str, HostFacts],
        free: dict[str, list[int]],
        had: Mapping[str, int],
        first: str | None,
    ) -> None:
        self.wish, self.hosts, self.facts, self.free, self.had = wish, hosts, facts, free, had
        self.order = tuple(sorted(wish.hosts, key=lambda name: name != first))
        self.each = {name: wish.gpus_each(had.get(name, 0), len(free.get(name, ()))) for name in self.order}

    def seats(self) -> tuple[Seat, ...]:
        quota = {name: self._quota(name) for name in self.order}
        total = sum(quota.values()) if self.wish.total is None else self.wish.total
        if total > sum(quota.values()):
            raise self._too_many(total, quota)
        names: list[str] = []
        while len(names) < total:
            for name in [name for name in self.order if quota[name]][: total - len(names)]:
                quota[name] -= 1
                names.append(name)
        if self.wish.neighbours:
            names.sort(key=self.order.index)
        return tuple(self._seat(index, name) for index, name in enumerate(names))

    def _room(self, name: str) -> int:
        return len(self.free[name]) // self.each[name] if self.each[name] else ANY_NUMBER

    def _quota(self, name: str) -> int:
        """How many tasks of the role this host takes at most (or exactly, where no total is asked for)."""
        room, wish = self._room(name), self.wish
        if self._filled(name):
            if wish.total is None:
                raise gpus.all_busy(self.hosts[name], self.facts[name], f"other processes fill the GPUs of {name}")
            return 0
        if wish.total is not None:
            return min(room, ANY_NUMBER if wish.per_host is None else wish.per_host)
        if wish.per_host is not None or (wish.gpus and not room):
            count = 1 if wish.per_host is None else wish.per_host
            if count > room:
                raise self._no_gpus(name, count)
            return count
        return room if wish.role == "worker" and wish.share == "one" and self.each[name] else 1

    def _filled(self, name: str) -> bool:
        """Its GPUs are taken, and nobody said that the task is to do without one."""
        wants = self.wish.gpus is None and self.wish.share in ("one", "all")
        return wants and gpus.filled(self.hosts[name], self.facts[name])

    def _seat(self, index: int, name: str) -> Seat:
        given = tuple(self.free[name][: self.each[name]]) if self.each[name] else ()
        if given:
            del self.free[name][: len(given)]
        return Seat(self.wish.role, index, name, given, f"{self._why_here(name)}; {self._why_gpus(name, given)}")

    def _why_here(self, name: str) -> str:
        role, at = self.wish.role, self.wish.hosts.index(name) + 1
        place = f"host {at} of {len(self.wish.hosts)} in the role {self.wish.of or role}"
        if self.wish.of not in ("", role):
            return f"{place}, since {self.wish.because}"
        return f"{place}, for {self.wish.because}" if self.wish.because else place

    def _why_gpus(self, name: str, given: tuple[int, ...]) -> str:
        if given:
            return gpus.named(self.facts[name], given)
        if self.wish.share == "none" and not self.wish.gpus:
            return f"a {self.wish.role} uses no GPU"
        if self.wish.gpus == 0:
            return f"`roles: {self.wish.role}` asks for no GPU"
        if self.had.get(name):
            return "no GPU is left there"
        return "`gpus: none` in the inventory" if self.hosts[name].gpus == "none" else "no GPU there"

    def _no_gpus(self, name: str, count: int) -> Refused:
        wish, left = self.wish, self.free[name]
        needed = f"{count} {wish.role} with {self.each[name]} GPU each"
        return Refused(
            f"{wish.role} on {name} cannot be placed: {needed}, and {name} has {_left(left, bool(self.had.get(name)))}",
            where=f"host {name}",
            next=f"ask for fewer under `roles: {wish.role}`, write `gpus: 0` there, or take {name} out of the role",
        )

    def _too_many(self, total: int, quota: Mapping[str, int]) -> TfdeployError:
        wish = self.wish
        if not self.order:
            return ConfigError(
                f"{wish.because} asks for {total}, and the inventory names no host for the role {wish.role}",
                where="inventory: roles",
                next=f"write `roles: {{{wish.role}: [HOST, ...]}}` in the inventory",
            )
        places = ", ".join(f"{name} {quota[name]}" for name in self.order[:8]) + (", ..." if len(self.order) > 8 else "")
        rule = "`per_host` of the job" if wish.per_host is not None else "one per GPU, unless the job says `gpus: 0`"
        return Refused(
            f"{wish.because or f'the role {wish.role}'} asks for {total}, and there is room for "
            f"{sum(quota.values())} ({places}): {rule}",
            where=f"role {wish.role}",
            next=f"ask for at most {sum(quota.values())}, name more hosts, or write `roles: {{{wish.role}: {{gpus: 0}}}}`",
        )


def _left(left: Sequence[int], had: bool) -> str:
    if left:
        return "GPU " + ", ".join(map(str, left)) + " left"
    return "none left" if had else "none"
