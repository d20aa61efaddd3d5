"""Roles -> tasks on hosts, with their GPUs: how many of each, where, and why there. Ports come later.

Counts are the contract's: one ps per host of its role, one worker per GPU of each worker host (one where there is
none), one chief, one evaluator; the job's `roles` and --ps/--workers say otherwise. Round-robin, in inventory order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdeploy.errors import ConfigError, Refused, TfdeployError
from tfdeploy.model.cluster import ROLES
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, RoleRule
from tfdeploy.planning import gpus
from tfdeploy.planning.options import Options

SINGLE = ("chief", "evaluator")  # roles with one task, unless the job says otherwise
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


@dataclass(frozen=True)
class Wish:
    """What is asked of one role. `total` None: `per_host` on each host, or the contract's own count."""

    role: str
    hosts: tuple[str, ...]
    total: int | None
    per_host: int | None
    gpus: int | None
    because: str  # who asked for that many

    def gpus_each(self, had: bool, left: bool) -> int:
        """GPUs for one task on a host that had GPUs and has some left: none for a ps, the job's word, else one if
        there is one. An evaluator takes only what the others leave."""
        if self.role == "ps":
            return 0
        return int(left if self.role == "evaluator" else had) if self.gpus is None else self.gpus


def role_hosts(inventory: Inventory, role: str) -> tuple[str, ...]:
    """The hosts of a role that are in the inventory (--limit and --exclude may have left some out)."""
    there = {host.name for host in inventory.hosts}
    return tuple(dict.fromkeys(name for name in inventory.roles.get(role, ()) if name in there))


def wishes(inventory: Inventory, job: Job, options: Options) -> dict[str, Wish]:
    """What each role of the cluster is asked for; a role that nobody asks for is left out."""
    asked = {"ps": options.ps, "worker": options.workers}
    flag = {"ps": "--ps", "worker": "--workers"}
    found = {}
    for role in ROLES:
        rule, hosts, total = job.roles.get(role, RoleRule()), role_hosts(inventory, role), asked.get(role)
        because = f"{flag[role]} {total}" if total is not None else f"`roles: {role}` of the job"
        if total is None:
            total = rule.count
        if total is None and rule.per_host is None:
            because = ""
            total = 1 if role in SINGLE and hosts else None
        if hosts or total or rule.per_host:
            found[role] = Wish(role, hosts, total, rule.per_host, rule.gpus, because)
    return found


def place(
    wished: Mapping[str, Wish], hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], first: Mapping[str, str]
) -> tuple[Seat, ...]:
    """Every task with its host, in the order of ROLES. `first`: role -> host that must get the role's task 0.

    Raises Refused when GPUs are asked for and not there, and when a role with tasks names no host.
    """
    free = {name: list(gpus.usable(hosts[name], facts[name])) for name in _with_gpus(wished)}
    had = {name for name in free if free[name]}
    seats: dict[str, tuple[Seat, ...]] = {}
    for role in sorted(wished, key=lambda role: _turn(wished[role])):
        seats[role] = _Round(wished[role], hosts, facts, free, had, first.get(role)).seats()
    return tuple(seat for role in ROLES for seat in seats.get(role, ()))


def decider(seats: Sequence[Seat]) -> Seat:
    """The deciding task: the chief where there is one, else worker:0."""
    chiefs = [seat for seat in seats if seat.role == "chief"]
    return (chiefs or [seat for seat in seats if seat.role == "worker"])[0]


def _turn(wish: Wish) -> tuple[bool, bool, int]:
    """Who picks GPUs first: the chief, then roles whose `gpus` the job names, then workers, then evaluators."""
    return (wish.role != "chief", not wish.gpus, ROLES.index(wish.role))


def _with_gpus(wished: Mapping[str, Wish]) -> list[str]:
    return list(dict.fromkeys(name for wish in wished.values() if wish.role != "ps" for name in wish.hosts))


class _Round:
    """The placing of one role: takes GPUs out of `free` as it goes."""

    def __init__(
        self,
        wish: Wish,
        hosts: Mapping[str, Host],
        facts: Mapping[str, HostFacts],
        free: dict[str, list[int]],
        had: set[str],
        first: str | None,
    ) -> None:
        self.wish, self.hosts, self.facts, self.free, self.had = wish, hosts, facts, free, had
        self.order = tuple(sorted(wish.hosts, key=lambda name: name != first)) if first else wish.hosts
        self.each = {name: wish.gpus_each(name in had, bool(free.get(name))) for name in self.order}

    def seats(self) -> tuple[Seat, ...]:
        quota = {name: self._quota(name) for name in self.order}
        total = sum(quota.values()) if self.wish.total is None else self.wish.total
        if total > sum(quota.values()):
            raise self._too_many(total, quota)
        seats: list[Seat] = []
        while len(seats) < total:
            for name in [name for name in self.order if quota[name]][: total - len(seats)]:
                quota[name] -= 1
                seats.append(self._seat(len(seats), name))
        return tuple(seats)

    def _room(self, name: str) -> int:
        return len(self.free[name]) // self.each[name] if self.each[name] else ANY_NUMBER

    def _quota(self, name: str) -> int:
        """How many tasks of the role this host takes at most (or exactly, where no total is asked for)."""
        room, wish = self._room(name), self.wish
        if wish.total is not None:
            return min(room, ANY_NUMBER if wish.per_host is None else wish.per_host)
        if wish.per_host is not None or (wish.gpus and not room):
            count = 1 if wish.per_host is None else wish.per_host
            if count > room:
                raise self._no_gpus(name, count)
            return count
        return room if wish.role == "worker" and self.each[name] else 1

    def _seat(self, index: int, name: str) -> Seat:
        given = tuple(self.free[name][: self.each[name]]) if self.each[name] else ()
        if given:
            del self.free[name][: len(given)]
        return Seat(self.wish.role, index, name, given, f"{self._why_here(name)}; {self._why_gpus(name, given)}")

    def _why_here(self, name: str) -> str:
        role, at = self.wish.role, self.wish.hosts.index(name) + 1
        place = f"host {at} of {len(self.wish.hosts)} in the role {role}"
        return f"{place}, for {self.wish.because}" if self.wish.because else place

    def _why_gpus(self, name: str, given: tuple[int, ...]) -> str:
        if given:
            return gpus.named(self.facts[name], given)
        if self.wish.role == "ps":
            return "a ps uses no GPU"
        if self.wish.gpus == 0:
            return f"`roles: {self.wish.role}` asks for no GPU"
        if name in self.had:
            return "no GPU is left there"
        return "`gpus: none` in the inventory" if self.hosts[name].gpus == "none" else "no GPU there"

    def _no_gpus(self, name: str, count: int) -> Refused:
        wish, left = self.wish, self.free[name]
        needed = f"{count} {wish.role} with {self.each[name]} GPU each"
        return Refused(
            f"{wish.role} on {name} cannot be placed: {needed}, and {name} has {_left(left, name in self.had)}",
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
