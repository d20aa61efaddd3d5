"""Check that all hosts of a run can connect to each other.

A launch does this after it has prepared the run and before it starts the tasks. There is also a
note if this machine is not a host of the run but can connect to the run's ports.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfdeploy.errors import Refused
from tfdeploy.model.answers.runs import RUN_LINKS, UnreachablePort
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.operations.launching.renewal import raise_if_run_ended_or_unknown, renew_prepared_run
from tfdeploy.operations.outcomes import values_or_error
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.text.names import fold_names, group_by_key
from tfdeploy.text.units import format_count
from tfdeploy.transport.protocols import Fleet

WITHIN_S = 120.0  # each host must check its connections within this many seconds
# Timeout, in seconds, of a connection from this machine. It is short, because a firewall that drops
# packets delays every launch by this time.
FROM_HERE_S = 0.5
FROM_HERE = 16  # this machine tries to reach only this many hosts, which is enough for a note
MOST_LINES = 10  # an error message lists at most this many pairs of hosts
_IN_WORDS = {"closed": "nobody listens"}
_BEHIND_NAT = "; if a host is behind NAT, set its `advertise:` to the address that other hosts see"


def check_links(fleet: Fleet, plan: Plan) -> None:
    """Check the connections between all hosts of the run.

    Raises Refused with the pairs of hosts and the ports for which a connection fails. If hosts do
    not answer, raises their errors.
    """
    if len(plan.hosts) < 2:
        return
    link_answers = call_all(fleet, plan, RUN_LINKS, timeout_s=WITHIN_S)
    raise_if_run_ended_or_unknown(link_answers)
    answers = values_or_error("links", link_answers)
    if any(answer.shut for answer in answers.values()):
        # The ports of a host may be closed because the run has ended there. In this case, the end
        # of the run is reported instead.
        raise_if_run_ended_or_unknown(renew_prepared_run(fleet, plan))
        tries = Counter(to for answer in answers.values() for to in answer.asked)
        raise unreachable_error(
            {host: answer.shut for host, answer in answers.items()}, hosts_of(plan), tries
        )


def open_ports_note(plan: Plan) -> str | None:
    """Return a note if this machine can reach the run's ports but is not a host of the run.

    Such access is a risk, because TensorFlow's servers do not authenticate clients.
    """
    serving = {
        task.host
        for task in plan.tasks
        if task.address and plan.protect.level_of(task.host) == "none"
    }
    hosts = [host for host in plan.hosts if host.host in serving][:FROM_HERE]
    with ThreadPoolExecutor(FROM_HERE) as pool:
        addresses = list(pool.map(_local_address_towards, hosts))
    reached = [host.host for host, address in zip(hosts, addresses, strict=True) if address]
    if not reached or {host.address for host in plan.hosts} & set(addresses):
        return None
    return (
        f"this machine is no host of the run, but it can connect to ports on "
        f"{fold_names(reached)}. "
        "Any machine that can do so can run graphs on TensorFlow's servers. A firewall that admits "
        "only the run's hosts prevents this"
    )


def _local_address_towards(host: HostPlan) -> str | None:
    """Return this machine's own address on a connection to the host.

    The connection goes to the host's mesh port, on which its agent listens for the other hosts of
    the run. Returns None if the connection fails.
    """
    try:
        with socket.create_connection(
            (host.address, host.mesh_port), timeout=FROM_HERE_S
        ) as connection:
            return str(connection.getsockname()[0])
    except OSError:
        return None


def unreachable_error(
    closed_ports: Mapping[str, Sequence[UnreachablePort]],
    hosts: Sequence[Host],
    tries_by_host: Mapping[str, int],
) -> Refused:
    """Return the error for hosts that do not reach each other.

    The error has one line for each host that no other host reaches. For the other hosts, it has one
    line for each pair in which the first host does not reach the second. `closed_ports`: {host:
    ports of other hosts that this host does not reach}. `tries_by_host`: {host: how many hosts
    tried to reach it}.
    """
    pairs = group_by_key(
        ((seen_from, each.host), each)
        for seen_from, ports in closed_ports.items()
        for each in ports
    )
    # {host: its closed ports}, as reported by the first host that could not reach these ports
    ports_by_target = {to: ports for (_, to), ports in reversed(pairs.items())}
    hosts_by_name = {host.name: host for host in hosts}
    isolated = [
        name
        for name in hosts_by_name
        if 1 < tries_by_host.get(name, 0) == sum(to == name for _, to in pairs)
    ]
    lines = [
        f"no other host reaches {name}: {_describe_ports(ports_by_target[name])}"
        for name in isolated
    ]
    other_pairs = {pair: ports for pair, ports in pairs.items() if pair[1] not in isolated}
    lines += [
        f"{seen_from} does not reach {to}: {_describe_ports(ports)}"
        for (seen_from, to), ports in other_pairs.items()
    ]
    omitted = (
        [f"and {format_count(len(lines) - MOST_LINES, 'more pair')}"]
        if len(lines) > MOST_LINES
        else []
    )
    nat = (
        _BEHIND_NAT
        if any(
            each.why.startswith("turned away") for ports in closed_ports.values() for each in ports
        )
        else ""
    )
    culprits = [hosts_by_name[name] for name in dict.fromkeys(to for _, to in pairs)]
    port_ranges = dict.fromkeys("{}-{}".format(*host.ports) for host in culprits)
    return Refused(
        "hosts reach this machine, but not each other:"
        + "".join(f"\n  {line}" for line in (*lines[:MOST_LINES], *omitted)),
        where=", ".join(host.name for host in culprits[:MOST_LINES]),
        next=f"open TCP ports {', '.join(port_ranges)} between the hosts (`ports:` of the "
        f"inventory), "
        "or set `advertise:` of "
        f"{culprits[0].name} to an address that the others reach" + nat,
    )


def _describe_ports(ports: Sequence[UnreachablePort]) -> str:
    """Describe ports, such as "no answer at 10.0.0.3:2222, 10.0.0.3:2223 (worker:1)"."""
    by_reason: dict[str, list[str]] = {}
    for each in ports:
        by_reason.setdefault(_IN_WORDS.get(each.why, each.why), []).append(
            each.address + (f" ({each.task})" if each.task else "")
        )
    return "; ".join(f"{why} at {', '.join(addresses)}" for why, addresses in by_reason.items())
