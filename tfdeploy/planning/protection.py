"""Decides which level of protection (`protect`) guards the ports of each host, and describes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from tfdeploy.agent import peer_filter
from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan
from tfdeploy.model.protect import LEVELS, Level, Protection
from tfdeploy.model.text.folding import fold_names
from tfdeploy.model.text.nexts import as_root, install_on, on_host
from tfdeploy.planning.cluster.addresses import is_loopback, is_public

LONGEST_FILTER = 4096  # the most instructions that Linux accepts in a packet filter
_NEEDS: dict[Level, tuple[Level, ...]] = {
    "firewall": ("firewall", "peers"),
    "peers": ("peers",),
    "none": (),
}


def decide(job: Job, facts: Mapping[str, HostFacts], hosts: Iterable[HostPlan]) -> Protection:
    """Return the level of protection of each host.

    Raises Refused if the job names a level that one of the hosts cannot provide.
    """
    hosts = tuple(hosts)

    def all_at(level: Level, why: str) -> Protection:
        return Protection(job.protect, level, why, {host.host: level for host in hosts})

    if rules(job.mode).single:
        return all_at("none", f"no task of mode {job.mode} listens")
    if job.protect == "none":
        return all_at("none", "the job says so")
    kept = hindered(facts, [address for host in hosts for address in host.addresses])
    if job.protect != "auto":
        if kept[job.protect]:
            raise _refused(job, kept[job.protect])
        return all_at(job.protect, "the job says so")
    levels = {
        host.host: next(level for level in LEVELS if host.host not in kept[level]) for host in hosts
    }
    used = max(levels.values(), key=LEVELS.index)
    stronger = [f"{level}: {_first(kept[level])}" for level in LEVELS[: LEVELS.index(used)]]
    return Protection(
        "auto", used, "; ".join(stronger) if stronger else "the strongest there is", levels
    )


def hindered(
    facts: Mapping[str, HostFacts], addresses: Iterable[str]
) -> dict[Level, dict[str, str]]:
    """Return level of protection -> host -> why the host cannot provide it.

    Hosts that can provide a level are left out. `addresses`: those of all hosts of the run.
    """
    length = len(peer_filter.build_filter(addresses, 1, 0))
    return {
        level: {
            name: why
            for name, host_facts in facts.items()
            if (why := _hindrance(level, host_facts, length))
        }
        for level in LEVELS
    }


def open_hosts(plan: Plan) -> tuple[str, ...]:
    """Return the hosts that `protect: auto` leaves open, although tasks listen there.

    Hosts with a loopback address are left out.
    """
    if plan.protect.asked != "auto" or rules(plan.mode).single or rules(plan.mode).ranks:
        return ()
    listening = {task.host for task in plan.tasks if task.port is not None}
    return tuple(
        host.host
        for host in plan.hosts
        if host.host in listening
        and plan.protect.level_of(host.host) == "none"
        and not is_loopback(host.address)
    )


def refuse_open(plan: Plan, facts: Mapping[str, HostFacts]) -> None:
    """Raise Refused if `auto` would leave the ports of a host open to everybody."""
    names = open_hosts(plan)
    if not names:
        return
    first = names[0]
    addresses = (address for host in plan.hosts for address in host.addresses)
    why = hindered(facts, addresses)["peers"][first]
    raise Refused(
        f"`protect: auto` cannot keep strangers from the ports of {fold_names(names)} (on "
        f"{first}: {why}): TensorFlow's "
        "servers there would run what anybody sends who reaches them",
        where=f"host {first}",
        next=f"{cure(first, facts[first], 'peers')}; or leave these hosts out: --exclude "
        f"{shlex.quote(fold_names(names))}; "
        "or accept it: `tfdeploy launch --allow-open`, or `protect: none` in the job",
    )


def cure(host: str, facts: HostFacts, level: Level) -> str:
    """Return what the user must do so that the host can provide this level of protection.

    The text is a command for this machine, or advice.
    """
    own = facts.protect
    if level == "firewall" and own.firewall:
        line = (
            f'"{facts.user} ALL=(root) NOPASSWD: /usr/sbin/nft" in /etc/sudoers.d there '
            "(docs/protect.md)"
        )
        sudo = "" if facts.user == "root" else f"; and write {line}"
        return install_on(host, "nftables", facts.user) + sudo
    if own.peers:
        return (
            f"{on_host(host, 'uname', '-r')}: this needs Linux 4.5 or newer, and a real kernel "
            "instead of a sandbox"
        )
    if own.most_instructions < LONGEST_FILTER:
        return as_root(host, facts.user, "sysctl", "-w", "net.core.optmem_max=131072")
    return "launch on fewer hosts, or give the hosts consecutive addresses"


def refuse_public(
    facts: Mapping[str, HostFacts], protection: Protection, *, single: bool, allow_public: bool
) -> None:
    """Raise Refused if an unprotected host has a public address on some interface."""
    if single or allow_public:
        return
    for name, host_facts in facts.items():
        for address in host_facts.addresses if protection.level_of(name) == "none" else ():
            if is_public(address):
                raise Refused(
                    f"{name} has the public address {address}, and the run's ports are open to "
                    f"everybody ({protection.why}): "
                    "TensorFlow's servers have no authentication and run graphs from whoever "
                    "reaches them",
                    where=f"host {name}",
                    next="`protect: auto` in the job, or accept it: `tfdeploy launch "
                    "--allow-public`",
                )


def notes(
    job: Job, protection: Protection, hosts: Iterable[HostPlan], tasks: Iterable[TaskPlan]
) -> tuple[str, ...]:
    """Return notes on which ports can be reached by whom."""
    mode, tasks = rules(job.mode), tuple(tasks)
    if mode.single:
        return ()
    hosts = tuple(hosts)
    lines = [
        _level_note(
            protection, level, names, hosts, () if mode.ranks and level == "peers" else tasks
        )
        for level, names in protection.by_level().items()
    ]
    if mode.ranks:
        lines += [
            f"every machine that reaches {task.host} can connect to {task.host}:{task.port} "
            f"(MASTER_PORT of {task.task}) also "
            "under `protect: peers`, because the program opens this port itself; if that "
            "matters, write `protect: firewall`"
            for task in tasks
            if task.port is not None and protection.level_of(task.host) == "peers"
        ]
    lines += _public_notes(protection, hosts)
    if protection.used != "none" and not mode.ranks:
        free = [task.task for task in tasks if task.port is None and task.role not in mode.silent]
        lines += (
            [f"protect does not cover {fold_names(free)}: where they listen is up to the program"]
            if free
            else []
        )
    return tuple(lines)


def _level_note(
    protection: Protection,
    level: Level,
    names: tuple[str, ...],
    hosts: tuple[HostPlan, ...],
    tasks: tuple[TaskPlan, ...],
) -> str:
    """Return a line on the hosts with this level: who can connect to which ports, and a remedy.

    The line does not name the hosts if all hosts have this level. `tasks`: the tasks whose ports
    the level protects. The level firewall also protects the port of the agent (the mesh), which
    requires the run's certificates at every level.
    """
    warning = "warning: " if level == "none" and protection.asked == "auto" else ""
    covered = {
        host.host: _ports(host.host, tasks) + [host.mesh_port] * (level == "firewall")
        for host in hosts
        if host.host in names
    }
    where = "" if len(names) == len(hosts) else f" on {fold_names(names)}"
    why = f" ({protection.why})" if level == protection.used else ""
    begin = f"{warning}protect: {level}{where}{why}"
    at = ", ".join(f"{host}:{_folded(ports)}" for host, ports in covered.items() if ports)
    if not at:
        return f"{begin}: it covers no port of the tasks"
    whose = "the tasks and the mesh" if level == "firewall" else "the tasks"
    return (
        f"{begin}: {_who_connects(protection, level)} can connect to {whose} at "
        f"{at}{_remedy(level)}"
    )


def _remedy(level: Level) -> str:
    if level == "none":
        return (
            ", and TensorFlow's servers run what anybody sends; to prevent that, see what "
            "`tfdeploy check` and "
            "docs/protect.md say"
        )
    cure = "write `protect: firewall`, and `tfdeploy check` says what the hosts lack for it"
    return f"; if other users there must not, {cure}" if level == "peers" else ""


def _who_connects(protection: Protection, level: Level) -> str:
    """Return a text on who can connect to the ports of a host with this level of protection.

    A host with level firewall stops its other users from connecting to any host of the run.
    """
    if level == "none":
        return "every machine that reaches them"
    levels = protection.by_level()
    every_user = [host for other, names in levels.items() if other != "firewall" for host in names]
    users = "the run's user there" if not every_user else "every user there"
    if every_user and "firewall" in levels:
        users = f"the run's user and on {fold_names(every_user)} every user"
    return f"only the run's hosts, with {users},"


def _public_notes(protection: Protection, hosts: Iterable[HostPlan]) -> list[str]:
    """Return a line on hosts with public addresses, for each level of protection among them."""
    public_addresses = {
        host.host: public
        for host in hosts
        if (public := [each for each in host.addresses if is_public(each)])
    }
    lines = []
    for level in LEVELS:
        names = [name for name in public_addresses if protection.level_of(name) == level]
        if names:
            open_to = (
                "TensorFlow's servers run graphs from whoever reaches their ports"
                if level == "none"
                else f"protect: {level} turns strangers away there, but not at ports that the "
                "program opens by itself"
            )
            lines.append(
                f"public addresses on {fold_names(names)} (on {names[0]} {public_addresses[names[0]][0]}): "
                f"{open_to}"
            )
    return lines


def _hindrance(level: Level, facts: HostFacts, length: int) -> str:
    """Return why a host cannot provide this level of protection; "" if it can.

    `length`: number of instructions in the packet filter that the run needs.
    """
    whys = [facts.protect.hindrance(needed) for needed in _NEEDS[level]]
    if "peers" in _NEEDS[level] and length > facts.protect.most_instructions:
        whys.append(
            f"the addresses of all hosts take a filter of {length} instructions, and its kernel "
            "takes "
            f"{facts.protect.most_instructions} (sysctl net.core.optmem_max)"
        )
    return next(filter(None, whys), "")


def _first(whys: Mapping[str, str]) -> str:
    name, why = next(iter(whys.items()))
    others = len(whys) - 1
    more = f"; {others} more host{'s' * (others > 1)} cannot do it either" if others else ""
    return f"{name}: {why}{more}"


def _refused(job: Job, whys: Mapping[str, str]) -> Refused:
    return Refused(
        f"the job asks for `protect: {job.protect}`, and not every host can: {_first(whys)}",
        where=f"host {next(iter(whys))}",
        next="with `protect: auto`, each host takes the strongest level that it can do",
    )


def _ports(host: str, tasks: tuple[TaskPlan, ...]) -> list[int]:
    return [task.port for task in tasks if task.host == host and task.port is not None]


def _folded(ports: list[int]) -> str:
    """Return the ports as a text with ranges: "2222-2224,2230"."""
    ranges: list[list[int]] = []
    for port in sorted(ports):
        if ranges and port == ranges[-1][1] + 1:
            ranges[-1][1] = port
        else:
            ranges.append([port, port])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
