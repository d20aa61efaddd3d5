"""Who may reach the ports of the run: the strongest that every host can do, and what the plan says of it. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from tfdeploy.agent import peer_filter
from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.folding import fold_names
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.plan import HostPlan, TaskPlan
from tfdeploy.model.protect import LEVELS, Level, Protection

_NEEDS: dict[Level, tuple[Level, ...]] = {"firewall": ("firewall", "peers"), "peers": ("peers",), "none": ()}
_ADMITS: dict[Level, str] = {
    "firewall": "the run's hosts alone, and there its user",
    "peers": "the run's hosts alone, and there every user",
    "none": "everybody who reaches them, and TensorFlow's servers run what anybody sends",
}


def decide(job: Job, facts: Mapping[str, HostFacts], hosts: Iterable[HostPlan]) -> Protection:
    """Raises Refused where a host cannot do what the job names."""
    if rules(job.mode).single:
        return Protection(job.protect, "none", f"no task of mode {job.mode} listens")
    if job.protect == "none":
        return Protection("none", "none", "the job says so")
    kept = hindered(facts, [address for host in hosts for address in host.addresses])
    if job.protect != "auto":
        if kept[job.protect]:
            raise _refused(job, kept[job.protect])
        return Protection(job.protect, job.protect, "the job says so")
    used = next(level for level in LEVELS if not kept[level])
    stronger = [f"{level}: {_first(kept[level])}" for level in LEVELS[: LEVELS.index(used)]]
    return Protection("auto", used, "; ".join(stronger) if stronger else "the strongest there is")


def hindered(facts: Mapping[str, HostFacts], addresses: Iterable[str]) -> dict[Level, dict[str, str]]:
    """Level -> host -> why it cannot do this. `addresses`: of all hosts of the run."""
    length = len(peer_filter.program(addresses, 1, 0))
    return {level: _hindered(level, facts, length) for level in LEVELS}


def refuse_public(facts: Mapping[str, HostFacts], protection: Protection, *, single: bool, allow_public: bool) -> None:
    """Raises Refused where a port that is open to everybody would be reachable at a public address of some interface."""
    if single or allow_public or protection.used != "none":
        return
    for name, found in facts.items():
        for address in found.addresses:
            if _is_public(address):
                raise Refused(
                    f"{name} has the public address {address}, and the run's ports are open to everybody ({protection.why}): "
                    "TensorFlow's servers have no authentication and run graphs from whoever reaches them",
                    where=f"host {name}",
                    next="`protect: auto` in the job, or accept it: `tfdeploy launch --allow-public`",
                )


def notes(job: Job, protection: Protection, hosts: Iterable[HostPlan], tasks: Iterable[TaskPlan]) -> tuple[str, ...]:
    """Which ports are open to whom."""
    mode, tasks = rules(job.mode), tuple(tasks)
    if mode.single:
        return ()
    hosts = tuple(hosts)
    warning = "warning: " if protection.used == "none" and protection.asked == "auto" else ""
    ports = [f"{host.host}:{_folded([host.mesh_port, *_ports(host.host, tasks)])}" for host in hosts]
    said = [
        f"{warning}protect: {protection.used} ({protection.why}): the ports admit {_ADMITS[protection.used]}: {', '.join(ports)}"
    ]
    if protection.used == "peers" and mode.ranks:
        said += [
            f"{task.host}:{task.port} (MASTER_PORT) stays open to whoever reaches it: its program binds it alone"
            for task in tasks
            if task.port is not None
        ]
    said += _public_notes(protection, hosts)
    if protection.used != "none" and not mode.ranks:
        free = [task.task for task in tasks if task.port is None and task.role not in mode.silent]
        said += [f"protect does not cover {fold_names(free)}: where they listen is up to the program"] if free else []
    return tuple(said)


def _public_notes(protection: Protection, hosts: Iterable[HostPlan]) -> list[str]:
    """One line for all hosts that have public addresses."""
    found = {host.host: public for host in hosts if (public := [each for each in host.addresses if _is_public(each)])}
    if not found:
        return []
    name, addresses = next(iter(found.items()))
    open_to = (
        "TensorFlow's servers run graphs from whoever reaches their ports"
        if protection.used == "none"
        else f"protect: {protection.used} turns strangers away there, but not at ports that the program opens by itself"
    )
    return [f"public addresses on {fold_names(found)} (on {name} {addresses[0]}): {open_to}"]


def _hindered(level: Level, facts: Mapping[str, HostFacts], length: int) -> dict[str, str]:
    """Host -> why it cannot do this."""
    found = {}
    for name, of_host in facts.items():
        whys = [of_host.protect.of(needed) for needed in _NEEDS[level]]
        if "peers" in _NEEDS[level] and length > of_host.protect.most_instructions:
            whys.append(
                f"the addresses of all hosts take a filter of {length} instructions, and its kernel takes "
                f"{of_host.protect.most_instructions} (sysctl net.core.optmem_max)"
            )
        if why := next(filter(None, whys), ""):
            found[name] = why
    return found


def _first(whys: Mapping[str, str]) -> str:
    name, why = next(iter(whys.items()))
    return f"{name}: {why}" + (f", and {len(whys) - 1} more" if len(whys) > 1 else "")


def _refused(job: Job, whys: Mapping[str, str]) -> Refused:
    return Refused(
        f"the job asks for `protect: {job.protect}`, and not every host can: {_first(whys)}",
        where=f"host {next(iter(whys))}",
        next="`protect: auto` takes the strongest that every host can do",
    )


def _ports(host: str, tasks: tuple[TaskPlan, ...]) -> list[int]:
    return [task.port for task in tasks if task.host == host and task.port is not None]


def _folded(ports: list[int]) -> str:
    """ "2222-2224,2230" """
    ranges: list[list[int]] = []
    for port in sorted(ports):
        if ranges and port == ranges[-1][1] + 1:
            ranges[-1][1] = port
        else:
            ranges.append([port, port])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global
