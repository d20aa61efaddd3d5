"""Chooses the level of protection (`protect`) for the ports of each host, and describes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from tfdeploy.agent import peer_filter
from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts
from tfdeploy.model.job import LEVELS, Job, Level, Protection
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import HostPlan, Notes, Plan, TaskPlan
from tfdeploy.planning.cluster.addresses import is_loopback, is_public
from tfdeploy.text.names import fold_names
from tfdeploy.text.nexts import command_on_host, install_command, root_command_on_host
from tfdeploy.text.units import format_count

LONGEST_FILTER = 4096  # the largest number of instructions in a packet filter that Linux accepts
_REMEDIES = {
    "none": ", and TensorFlow's servers run any graph that they are sent; `tfdeploy check` and "
    "docs/protect.md tell how to prevent this",
    "peers": "; if other users must not connect, write `protect: firewall` (`tfdeploy check` tells "
    "what the hosts need for this)",
}


def decide_protection(job: Job, facts: FactsByHost, hosts: Iterable[HostPlan]) -> Protection:
    """Return the level of protection of each host.

    Raises Refused if the job names a level that one of the hosts cannot provide.
    """
    hosts = tuple(hosts)

    def all_at(level: Level, why: str) -> Protection:
        return Protection(job.protect, level, why, {host.host: level for host in hosts})

    if rules_of(job.mode).single:
        return all_at("none", f"no task of mode {job.mode} listens")
    hindrances = find_hindrances(facts, [address for host in hosts for address in host.addresses])
    if job.protect != "auto":
        if whys := hindrances[job.protect]:
            raise Refused(
                f"the job asks for `protect: {job.protect}`, but not every host supports it: "
                f"{_first_reason(whys)}",
                where=f"host {next(iter(whys))}",
                next="with `protect: auto`, each host has the strongest level that it supports",
            )
        return all_at(job.protect, "the job says so")
    levels = {
        host.host: next(level for level in LEVELS if host.host not in hindrances[level])
        for host in hosts
    }
    used = max(levels.values(), key=LEVELS.index)
    stronger = [
        f"{level} is impossible: {_first_reason(hindrances[level])}"
        for level in LEVELS[: LEVELS.index(used)]
    ]
    return Protection("auto", used, "; ".join(stronger) or "the strongest there is", levels)


def find_hindrances(facts: FactsByHost, addresses: Iterable[str]) -> dict[Level, dict[str, str]]:
    """Return {level of protection: {host: why the host cannot provide it}}.

    Hosts that can provide a level are left out. `addresses`: the addresses of all hosts of the run.
    """
    length = len(peer_filter.build_filter(addresses, 1, 0))
    return {
        level: {
            name: why
            for name, host_facts in facts.items()
            if (why := _why_not_provided(level, host_facts, length))
        }
        for level in LEVELS
    }


def unprotected_hosts(plan: Plan) -> tuple[str, ...]:
    """Return the hosts on which tasks listen, and whose ports `protect: auto` leaves unprotected.

    Hosts with a loopback address are left out.
    """
    if plan.protect.asked != "auto" or rules_of(plan.mode).single or rules_of(plan.mode).ranks:
        return ()
    listening = {task.host for task in plan.tasks if task.port is not None}
    return tuple(
        host.host
        for host in plan.hosts
        if host.host in listening
        and plan.protect.level_of(host.host) == "none"
        and not is_loopback(host.address)
    )


def refuse_unprotected_hosts(plan: Plan, facts: FactsByHost) -> None:
    """Raise Refused if `protect: auto` would leave the ports of a host open to everybody."""
    names = unprotected_hosts(plan)
    folded = fold_names(names)
    for first in names[:1]:
        addresses = (address for host in plan.hosts for address in host.addresses)
        why = find_hindrances(facts, addresses)["peers"][first]
        raise Refused(
            f"`protect: auto` cannot keep strangers from the ports of {folded} (on {first}: "
            f"{why}): TensorFlow's servers on these hosts would run whatever anybody sends to them",
            where=f"host {first}",
            next=f"{protection_remedy(first, facts[first], 'peers')}; or leave these hosts out: "
            f"--exclude {shlex.quote(folded)}; or accept the risk: `tfdeploy launch --allow-open`, "
            "or `protect: none` in the job",
        )


def protection_remedy(host: str, facts: HostFacts, level: Level) -> str:
    """Return what the user must do so that the host can provide this level of protection.

    The text is a command to type on the control machine, or advice.
    """
    own, user = facts.protect, facts.user
    if level == "firewall" and own.firewall:
        install = install_command(host, "nftables", user)
        line = f'"{user} ALL=(root) NOPASSWD: /usr/sbin/nft"'
        sudo = f"{install}; and write {line} in /etc/sudoers.d there (docs/protect.md)"
        return install if user == "root" else sudo
    if own.peers:
        kernel = command_on_host(host, "uname", "-r")
        return f"`protect: {level}` needs Linux 4.5 or newer, not a sandbox's kernel: {kernel}"
    if own.most_instructions < LONGEST_FILTER:
        return root_command_on_host(host, user, "sysctl", "-w", "net.core.optmem_max=131072")
    return (
        "launch on fewer hosts, or give them consecutive addresses, so that the filter is shorter"
    )


def refuse_public_hosts(facts: FactsByHost, protection: Protection) -> None:
    """Raise Refused if an unprotected host has a public address on some interface."""
    for name, host_facts in facts.items():
        for address in host_facts.addresses if protection.level_of(name) == "none" else ():
            if is_public(address):
                raise Refused(
                    f"{name} has the public address {address}, and the run's ports are open to "
                    f"everybody ({protection.why}): TensorFlow's servers have no authentication "
                    "and run graphs from whoever reaches them",
                    where=f"host {name}",
                    next="write `protect: auto` in the job, or accept open ports: `tfdeploy launch "
                    "--allow-public`",
                )


def notes(
    job: Job, protection: Protection, hosts: Sequence[HostPlan], tasks: Sequence[TaskPlan]
) -> Notes:
    """Return notes that say who can connect to which ports."""
    mode = rules_of(job.mode)
    if mode.single:
        return ()
    lines = [
        _level_note(
            protection, level, names, hosts, () if mode.ranks and level == "peers" else tasks
        )
        for level, names in protection.hosts_by_level().items()
    ]
    if mode.ranks:
        lines += [
            f"even with `protect: peers`, every machine that reaches {task.host} can connect to "
            f"{task.host}:{task.port} (MASTER_PORT of {task.task}), because the program opens this "
            "port itself; to prevent this, write `protect: firewall`"
            for task in tasks
            if task.port is not None and protection.level_of(task.host) == "peers"
        ]
    lines += _public_notes(protection, hosts)
    free = [
        task.task for task in tasks if task.port is None and task.role not in mode.portless_roles
    ]
    if free and protection.used != "none":
        names = fold_names(free)
        lines.append(f"`protect` does not cover {names}: the program itself chooses their ports")
    return tuple(lines)


def _level_note(
    protection: Protection,
    level: Level,
    names: Sequence[str],
    hosts: Sequence[HostPlan],
    tasks: Sequence[TaskPlan],
) -> str:
    """Return a line about the hosts that have this level of protection.

    The line says who can connect to which ports, and names a remedy. If all hosts have this level,
    the line does not name the hosts. `tasks`: the tasks whose ports this level protects. The level
    firewall also protects the agent's port. At every level, only peers with a certificate of the
    run can use the agent's port.
    """
    warning = "warning: " if level == "none" and protection.asked == "auto" else ""
    where = "" if len(names) == len(hosts) else f" on {fold_names(names)}"
    why = f" ({protection.why})" if level == protection.used else ""
    begin = f"{warning}protect: {level}{where}{why}"
    places = []
    for host in hosts:
        ports = [host.mesh_port] if level == "firewall" else []
        ports += [task.port for task in tasks if task.host == host.host and task.port is not None]
        if ports and host.host in names:
            places.append(f"{host.host}:{fold_names(map(str, ports)).strip('[]')}")
    if not places:
        return f"{begin}: no port of the tasks is protected"
    whose = "the tasks and the agents" if level == "firewall" else "the tasks"
    return (
        f"{begin}: {_who_connects(protection, level)} can connect to {whose} at "
        f"{', '.join(places)}{_REMEDIES.get(level, '')}"
    )


def _who_connects(protection: Protection, level: Level) -> str:
    """Return a text on who can connect to the ports of a host with this level of protection.

    The text depends on the levels of all hosts: a host with level firewall also prevents its own
    other users from connecting to any host of the run.
    """
    if level == "none":
        return "every machine that reaches these hosts"
    levels = protection.hosts_by_level()
    open_to_users = fold_names(
        host for other, names in levels.items() if other != "firewall" for host in names
    )
    if open_to_users and "firewall" in levels:
        return f"only the run's user on the run's hosts, and all users of {open_to_users},"
    users = "users of" if open_to_users else "the run's user on"
    return f"only {users} the run's hosts"


def _public_notes(protection: Protection, hosts: Iterable[HostPlan]) -> list[str]:
    """Return lines on the hosts with public addresses: one for each level that these hosts have."""
    lines = []
    for level in LEVELS:
        public = {
            host.host: address
            for host in hosts
            for address in reversed(host.addresses)
            if is_public(address) and protection.level_of(host.host) == level
        }
        effect = (
            f"with `protect: {level}`, only the run's hosts can connect to the tasks' ports on "
            "these hosts, but everybody can connect to ports that the program opens itself"
        )
        if level == "none":
            effect = "TensorFlow's servers run graphs from whoever reaches their ports"
        for first, address in list(public.items())[:1]:
            lines.append(
                f"public addresses on {fold_names(public)} (on {first} {address}): {effect}"
            )
    return lines


def _why_not_provided(level: Level, facts: HostFacts, filter_length: int) -> str:
    """Return why a host cannot provide this level of protection; "" if it can provide it.

    `filter_length`: number of instructions in the packet filter that the run needs.
    """
    own, most = facts.protect, facts.protect.most_instructions
    if level == "none":
        return ""
    too_long = (
        f"a filter for the addresses of all hosts has {filter_length} instructions, and the kernel "
        f"of this host accepts at most {most} (sysctl net.core.optmem_max)"
    )
    # A host with the level firewall also uses the packet filter of the level peers.
    return own.hindrance_to(level) or own.peers or (too_long if filter_length > most else "")


def _first_reason(reason_by_host: Mapping[str, str]) -> str:
    name, why = next(iter(reason_by_host.items()))
    others = format_count(len(reason_by_host) - 1, "more host")
    return f"on {name}, {why}" + (
        f"; {others} cannot do it either" if len(reason_by_host) > 1 else ""
    )
