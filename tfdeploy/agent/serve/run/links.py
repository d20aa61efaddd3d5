"""Answers run.links: whether this host reaches the other hosts of a prepared run at the run's
ports.

On each host, the run's minder (the process that manages the run on that host) has held these ports
since run.prepare. It listens at the port for other minders (the mesh), but not at a task's port.
Therefore a refused connection to a task's port is a good answer: it shows that the host can be
reached. This check finds a firewall or a wrong route before any task starts.
"""

from __future__ import annotations

import collections

from tfdeploy.agent import peer_filter, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Collection, Dict, List, Mapping
from tfdeploy.agent.call import Call, Verb
from tfdeploy.agent.health import reach
from tfdeploy.agent.health.diagnose import CLOSED, OPEN
from tfdeploy.agent.host.parallel import call_for_each
from tfdeploy.agent.mesh import handshake_gate, listener, stated_addresses, tls
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.run import launch as run_launch
from tfdeploy.agent.serve.run import status as run_status

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# In a run of more hosts than this, each host tries only some others, because a kernel's table of
# neighbours holds 1024 entries, and the hosts of a test lab share one kernel.
ALL_TO_ALL_HOSTS = 16
# In larger runs, a host tries the ports of this many hosts that follow it in the plan
NEXT_HOSTS = 3
SERVING_HOSTS = 8  # in larger runs, a host also tries this many of the hosts with server tasks
ANSWER_S = 5.0  # timeout of a connection to a minder (the run's daemon on a host)
# Reasons of an SSLError that show that the other side is no host of the run. OpenSSL 3.5 reports
# RECORD_LAYER_FAILURE if a web server answers.
_WRONG_PEER_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "CERTIFICATE_VERIFY_FAILED")


class _PortToTry(NamedTuple):
    """A port to try. `task`: the task that will listen there, or "" for the port of the minder.
    `address`: includes the port."""

    host: str
    task: str
    address: str

    def is_unreachable(self, result: str) -> bool:
        return result != OPEN and (result != CLOSED or not self.task)

    def unreachable_report(self, why: str) -> Answer:
        return {"host": self.host, "task": self.task, "address": self.address, "why": why}


def check_links(call: Call) -> Answer:
    """Try the ports of other hosts of the prepared run. In a run of more than 16 hosts, each host
    tries only the next 3 hosts and, in addition, 8 hosts with server tasks.

    Args: run, job.

    Raises VerbError unknown_run, ended.
    """
    paths = run_status.named_run_paths(call)
    run_launch.refuse_if_ended(paths, refused_phases=("ending",))
    part = paths.part()
    hosts = _hosts_to_try(part)
    ports = _ports_to_try(part, hosts)
    minder_ports = [port for port in ports if not port.task]
    task_ports = [port for port in ports if port.task]
    shut = _find_unreachable_ports(minder_ports)
    unreached = {port["host"] for port in shut}
    reached = [port for port in minder_ports if port.host not in unreached]
    peers = _identify_minders(reached, paths, part)
    shut += [
        port.unreachable_report(peers[port.host].wrong_answerer)
        for port in reached
        if peers[port.host].wrong_answerer
    ]
    # Ports of tasks are tried last, because the other hosts must first learn the addresses of this
    # host. Only then do they let connections from these addresses reach the ports of their tasks.
    guarded = reach.firewalled_task_addresses(part)
    shut += [
        _explain_foreign_source(port, peers)
        for port in _find_unreachable_ports(task_ports, guarded)
    ]
    return {"asked": hosts, "shut": shut}


def _explain_foreign_source(port: Answer, minder_by_host: Mapping[str, _MinderIdentity]) -> Answer:
    """Return the answer about an unreachable port. If the other host rejected this host's source
    address, and has said which address it saw, add that address to the answer."""
    source = minder_by_host[port["host"]].foreign_source
    if source and port["why"].startswith(reach.TURNED_AWAY):
        port["why"] = (
            "%s (this host's connections have the source address %s, which is not its own address)"
            % (reach.TURNED_AWAY, source)
        )
    return port


def _hosts_to_try(part: wire.HostPart) -> List[str]:
    """Return the hosts whose ports this host tries. The list begins with the host after this one,
    so that not all hosts try the same host at once."""
    hosts = [minder.host for minder in part.mesh]
    own_index = hosts.index(part.host)
    others = hosts[own_index + 1 :] + hosts[:own_index]
    if len(hosts) <= ALL_TO_ALL_HOSTS:
        return others
    serving = {peer.host for peer in part.peers if peer.serves}
    return (
        others[:NEXT_HOSTS]
        + [host for host in others[NEXT_HOSTS:] if host in serving][:SERVING_HOSTS]
    )


def _ports_to_try(part: wire.HostPart, hosts: List[str]) -> List[_PortToTry]:
    ports = []
    for host in hosts:
        ports += [
            _PortToTry(host, "", _join_address(each.address, each.port))
            for each in part.mesh
            if each.host == host
        ]
        ports += [
            _PortToTry(host, peer.task, peer.address)
            for peer in part.peers
            if peer.host == host and peer.address
        ]
    return ports


def _find_unreachable_ports(
    ports: List[_PortToTry], guarded_addresses: Collection[str] = ()
) -> List[Answer]:
    """Return the ports that are unreachable at two attempts in a row. One attempt is not enough,
    because the first packet on a route may be lost."""
    results: Dict[str, str] = {}
    for _ in range(2):
        results = reach.try_ports((port.address for port in ports), guarded=guarded_addresses)
        ports = [port for port in ports if port.is_unreachable(results[port.address])]
    return [port.unreachable_report(results[port.address]) for port in ports]


class _MinderIdentity(NamedTuple):
    """Who answers at the port of a minder. `wrong_answerer`: a text that says which other host or
    program answers, or "" if it is the right host. `foreign_source`: the source address of this
    host's connections, as the other host sees it, or "" if the other host admits this address."""

    wrong_answerer: str = ""
    foreign_source: str = ""


def _identify_minders(
    ports: List[_PortToTry], paths: RunPaths, part: wire.HostPart
) -> Dict[str, _MinderIdentity]:
    """Ask at each minder's port which host answers, because a name or address may lead to a wrong
    host, or to a machine outside the run.

    The question also states this host's own addresses, so that the other hosts admit them at the
    ports of their tasks.
    """
    peers: Dict[str, _MinderIdentity] = collections.defaultdict(_MinderIdentity)
    certs = paths.certificates()
    if certs and ports:
        tls_context, authority = tls.make_contexts(certs)[1], certs["ca"]

        def identify(port: _PortToTry) -> None:
            token = handshake_gate.server_name_token(authority, port.host)
            peers[port.host] = _identify_minder(port, tls_context, token, part)

        call_for_each(identify, ports, 2 * ANSWER_S)
    return peers


def _identify_minder(
    port: _PortToTry, tls_context: Any, token: str, part: wire.HostPart
) -> _MinderIdentity:
    """Ask at one minder's port which host answers. Return an empty _MinderIdentity if that host is
    busy or cannot be identified."""
    import ssl

    name, _, number = port.address.rpartition(":")
    try:
        with tls.connect(
            tls_context, name.strip("[]"), int(number), token, port.host, ANSWER_S
        ) as channel:
            channel.sendall(
                listener.encode_message(
                    part,
                    addresses=stated_addresses.list_own_addresses(channel),
                    ask={stated_addresses.SEEN_AS: True},
                )
            )
            answer = listener.receive_message(channel)
    except ssl.SSLError as error:
        is_wrong = error.reason in _WRONG_PEER_REASONS
        return _MinderIdentity("no host of this run answers" if is_wrong else "")
    except tls.WrongHostAnswered as error:
        return _MinderIdentity(str(error))
    except (OSError, ValueError):
        return _MinderIdentity()
    if not isinstance(answer, dict) or answer.get("admitted") is not False:
        return _MinderIdentity()
    source = str(answer.get("seen")).partition("%")[0]
    return _MinderIdentity(
        foreign_source=source if peer_filter.is_address(source) else "an unknown address"
    )


def _join_address(host: str, port: int) -> str:
    return "%s:%d" % ("[%s]" % host if ":" in host else host, port)


VERBS: Dict[str, Verb] = {"run.links": check_links}
