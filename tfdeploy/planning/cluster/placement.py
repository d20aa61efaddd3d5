"""Decides how many tasks each role gets, on which hosts and with which GPUs. Assigns no ports.

By default there is one ps on each host of the role ps, one worker for each GPU of each worker host,
one chief and one evaluator. A worker host without a GPU gets one worker. In mode mirrored, each
worker host has one worker, which gets all GPUs of the host. The job's `roles` and the flags --ps
and --workers change these numbers. Tasks are distributed round-robin, in the order of the
inventory. In modes with ranks, such as PyTorch, the tasks of one host get consecutive numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdeploy.errors import ConfigError, Refused, TfdeployError
from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.inventory import HostsByName
from tfdeploy.model.modes import ROLES, ModeRules
from tfdeploy.planning.cluster import gpus
from tfdeploy.planning.cluster.role_requests import RoleRequest, RoleRequests
from tfdeploy.text.units import list_first

ANY_NUMBER = 1 << 30  # stands for "no limit" on the tasks of a host


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


Seats = tuple[Seat, ...]


def place_tasks(
    requested: RoleRequests,
    hosts: HostsByName,
    facts: FactsByHost,
    host_of_task_0_by_role: Mapping[str, str],
) -> Seats:
    """Return every task with its host, in the order of ROLES.

    `host_of_task_0_by_role`: {role: host that must get task 0 of the role}. Raises Refused if
    requested GPUs are missing, and ConfigError if tasks are requested for a role without hosts.
    """
    free = {
        name: list(gpus.usable_gpus(hosts[name], facts[name]))
        for role, request in requested.items()
        if role != "ps"
        for name in request.hosts
    }
    had = {name: len(free[name]) for name in free}
    seats: list[Seat] = []
    for role, request in sorted(requested.items(), key=lambda item: _gpu_sort_key(item[1])):
        seats += _RolePlacement(
            request, hosts, facts, free, had, host_of_task_0_by_role.get(role)
        ).seats()
    return tuple(sorted(seats, key=lambda seat: ROLES.index(seat.role)))


def checkpoint_writer_seat(seats: Sequence[Seat]) -> Seat:
    """Return the task that writes the checkpoints: the chief if there is one, else worker:0.

    In most training modes, the run succeeds as soon as this task succeeds.
    """
    chiefs = [seat for seat in seats if seat.role == "chief"]
    return (chiefs or [seat for seat in seats if seat.role == "worker"])[0]


def deciding_tasks(mode: ModeRules, seats: Sequence[Seat]) -> tuple[str, ...]:
    """Return the deciding tasks: the run succeeds as soon as all of them have succeeded."""
    training = [seat for seat in seats if seat.role in ("chief", "worker")]
    return tuple(
        seat.task for seat in (training if mode.all_decide else [checkpoint_writer_seat(seats)])
    )


def _gpu_sort_key(request: RoleRequest) -> tuple[bool, bool, int]:
    """Return a sort key for the order in which roles get GPUs.

    The order is: the chief, the roles for which the job sets `gpus`, workers, evaluators.
    """
    return (request.role != "chief", not request.gpus, ROLES.index(request.role))


@dataclass
class _RolePlacement:
    """Places the tasks of one role. The GPUs that a task gets are removed from `free`.

    `usable_gpus`: {host: number of its usable GPUs before any task got one}. `first_host`: the host
    that must get task 0 of the role; None if any host may get it.
    """

    request: RoleRequest
    hosts: HostsByName
    facts: FactsByHost
    free: dict[str, list[int]]
    usable_gpus: Mapping[str, int]
    first_host: str | None

    def __post_init__(self) -> None:
        self.order = sorted(self.request.hosts, key=lambda name: name != self.first_host)
        left = {name: len(self.free.get(name, ())) for name in self.order}
        self.each = {
            name: self.request.gpus_per_task(self.usable_gpus.get(name, 0), left[name])
            for name in self.order
        }

    def seats(self) -> Seats:
        quota = {name: self._most_tasks(name) for name in self.order}
        total = sum(quota.values()) if self.request.total is None else self.request.total
        if total > sum(quota.values()):
            raise self._too_many_tasks_error(total, quota)
        names: list[str] = []
        while len(names) < total:
            for name in [name for name in self.order if quota[name]][: total - len(names)]:
                quota[name] -= 1
                names.append(name)
        if self.request.consecutive:
            names.sort(key=self.order.index)
        return tuple(self._take_seat(index, name) for index, name in enumerate(names))

    def _free_places(self, host_name: str) -> int:
        return (
            len(self.free[host_name]) // self.each[host_name]
            if self.each[host_name]
            else ANY_NUMBER
        )

    def _most_tasks(self, host_name: str) -> int:
        """Return how many tasks of the role the host can get at most.

        The host gets that many tasks if the job and the flags set no total number for the role.
        """
        room, request = self._free_places(host_name), self.request
        number = request.slots.get(host_name) if request.per_host is None else request.per_host
        wants_gpu = request.gpus is None and request.share in ("one", "all")
        if wants_gpu and gpus.are_all_gpus_busy(self.hosts[host_name], self.facts[host_name]):
            if request.total is None:
                raise gpus.busy_gpus_error(
                    self.hosts[host_name],
                    self.facts[host_name],
                    f"other processes use all GPUs of {host_name}",
                )
            return 0
        if request.total is not None:
            return room if number is None else min(room, number)
        if number is not None or (request.gpus and not room):
            count = 1 if number is None else number
            if count > room:
                raise self._too_few_gpus_error(host_name, count)
            return count
        fills = request.role == "worker" and request.share == "one" and self.each[host_name]
        return room if fills else 1

    def _take_seat(self, index: int, host_name: str) -> Seat:
        given = tuple(self.free.get(host_name, ())[: self.each[host_name]])
        if given:
            del self.free[host_name][: len(given)]
        why = f"{self._why_here(host_name)}; {self._why_gpus(host_name, given)}"
        return Seat(self.request.role, index, host_name, given, why)

    def _why_here(self, host_name: str) -> str:
        request, at = self.request, self.request.hosts.index(host_name) + 1
        link = "because" if request.host_role != request.role else "because of"
        because = f", {link} {request.because}" if request.because else ""
        return f"host {at} of {len(request.hosts)} in the role {request.host_role}{because}"

    def _why_gpus(self, host_name: str, given_gpus: tuple[int, ...]) -> str:
        if given_gpus:
            return gpus.gpus_text(self.facts[host_name], given_gpus)
        if self.request.share == "none" and not self.request.gpus:
            return f"a {self.request.role} uses no GPU"
        if self.request.gpus == 0:
            return f"`roles: {self.request.role}` asks for no GPU"
        if self.usable_gpus.get(host_name):
            return "no GPU is left on this host"
        by_inventory = self.hosts[host_name].gpus == "none"
        return "`gpus: none` in the inventory" if by_inventory else "this host has no GPU"

    def _too_few_gpus_error(self, host_name: str, task_count: int) -> Refused:
        request, had, left = (
            self.request,
            self.usable_gpus[host_name],
            ", ".join(map(str, self.free[host_name])),
        )
        needed = f"{task_count} {request.role} with {self.each[host_name]} GPU each"
        asked_by = "`slots`" if host_name in request.slots else f"`roles: {request.role}`"
        has = f"GPU {left} left" if left else "none left" if had else "none"
        return Refused(
            f"{request.role} on {host_name} cannot be placed: {needed}, and {host_name} has {has}",
            where=f"host {host_name}",
            next=f"ask for fewer tasks under {asked_by}"
            if had
            else f"write `gpus: 0` below `roles: {request.role}` ({request.place}), to train on "
            "CPUs",
        )

    def _too_many_tasks_error(
        self, task_count: int, quota_by_host: Mapping[str, int]
    ) -> TfdeployError:
        request = self.request
        if not self.order:
            return ConfigError(
                f"{request.because} asks for {task_count}, but the inventory names no host for the "
                f"role {request.role}",
                where="inventory: roles",
                next=f"write `roles: {{{request.role}: [HOST, ...]}}` in the inventory",
            )
        places = list_first([f"{name} {quota_by_host[name]}" for name in self.order], 8)
        by_gpu = "one per GPU, unless the job says `gpus: 0`"
        rule = by_gpu if request.per_host is None else "`per_host` of the job"
        return Refused(
            f"{request.because or f'the role {request.role}'} asks for {task_count}, but the hosts "
            f"have room for only {sum(quota_by_host.values())} ({places}): {rule}",
            where=f"role {request.role}",
            next=f"ask for at most {sum(quota_by_host.values())}, name more hosts, or write "
            f"`roles: {{{request.role}: {{gpus: 0}}}}`",
        )
