"""Ask other hosts for the signs of life of their tasks. Question and answer travel over the run's
mesh: the connections between the minders, the processes that watch the run on each host.

A connection begins with the question {"ask": {"signs": true}}; the answer is one line.
"""

from __future__ import annotations

import ssl

from tfdeploy.agent import json_text, wire
from tfdeploy.agent.annotations import Any, Dict, List, Set, Tuple
from tfdeploy.agent.health import reach
from tfdeploy.agent.health.activity import LifeSigns
from tfdeploy.agent.health.diagnose import OPEN
from tfdeploy.agent.mesh import bounded_json, listener, tls
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.record import NamedTuple

# Limits how many hosts are asked at the same time. The others are asked the next time.
MOST_HOSTS = 32
# Limits the time to connect, do the handshake and receive the answer, all together.
WITHIN_S = 3 * listener.TIMEOUT_S
_MOST_BYTES = 1 << 18  # the largest size of an answer, in bytes
_MOST_WAITS = 64  # an answer's list of the tasks for which one task waits is cut to this length


class PeerSigns(NamedTuple):
    """The answers of other hosts. `signs`: task -> its signs of life. `hosts`: host -> "open",
    "closed" or why it did not answer."""

    signs: Dict[str, LifeSigns]
    hosts: Dict[str, str]


def ask_for_signs(mesh: Mesh, part: wire.HostPart, hosts: List[str]) -> PeerSigns:
    """Ask these hosts for the signs of life of their tasks, and return the answers. Takes at most
    WITHIN_S seconds."""
    # Imported only here, because this module is needed only once a task is stalled.
    from tfdeploy.agent.host.parallel import call_for_each

    addresses = {address.host: address for address in part.mesh if address.host != part.host}
    asked = [addresses[host] for host in hosts[:MOST_HOSTS] if host in addresses]
    no_answer: Tuple[Dict[str, LifeSigns], str] = ({}, reach.NO_ANSWER)
    answers = dict.fromkeys((address.host for address in asked), no_answer)

    def store_answer(address: wire.MeshHost) -> None:
        answers[address.host] = _ask_host(mesh, part, address)

    call_for_each(store_answer, asked, WITHIN_S)
    # Answers that arrive after the time limit are not used.
    in_time = dict(answers)
    signs = {task: sign for host_signs, _ in in_time.values() for task, sign in host_signs.items()}
    return PeerSigns(signs, {host: result for host, (_, result) in in_time.items()})


def _ask_host(
    mesh: Mesh, part: wire.HostPart, address: wire.MeshHost
) -> Tuple[Dict[str, LifeSigns], str]:
    try:
        with mesh.connect(address) as channel:
            mesh.send_question(channel, {"signs": True})
            return _parse_signs_of_host(
                bounded_json.parse(tls.read_line(channel, _MOST_BYTES, listener.TIMEOUT_S)),
                part,
                address.host,
            ), OPEN
    except (OSError, ValueError) as error:
        return {}, reach.describe_error(error)


def _parse_signs_of_host(value: Any, part: wire.HostPart, host: str) -> Dict[str, LifeSigns]:
    """Check the answer of `host`. Return task -> its signs of life; tasks of other hosts are left
    out. Raises ValueError if the answer is invalid."""
    tasks = {peer.task for peer in part.peers}
    own_tasks = {peer.task for peer in part.peers if peer.host == host}
    received = bounded_json.pick_checked_fields(
        value, {"signs": bounded_json.check_object}, ("signs",)
    )
    checks = {"waits": lambda waits: _select_tasks_of_run(waits, tasks), **_CHECKS}
    return {
        task: LifeSigns(**bounded_json.pick_checked_fields(fields, checks, ("still_s",)))
        for task, fields in received["signs"].items()
        if task in own_tasks
    }


def _select_tasks_of_run(value: Any, tasks: Set[str]) -> Tuple[str, ...]:
    """Return the entries of the list `value` that are tasks of the run. `tasks`: all tasks of the
    run. Raises ValueError if `value` is no list."""
    entries = bounded_json.check_list(value)[:_MOST_WAITS]
    return tuple(entry for entry in entries if isinstance(entry, str) and entry in tasks)


_pid, _seconds = bounded_json.integer_check(0, 1 << 31), bounded_json.number_check(0.0, 1e12)
_CHECKS: Dict[str, bounded_json.Check] = {
    "still_s": _seconds,
    "waiting_s": _seconds,
    "stopped": _pid,
    "disk": _pid,
    "listens": bounded_json.check_bool,
    "starting": bounded_json.check_bool,
}


class SignsResponder:
    """Answers other hosts that ask for the signs of life of this host's tasks. The thread that
    observes the tasks always replaces the whole dict `signs`, so no lock is needed."""

    def __init__(self) -> None:
        self.signs: Dict[str, LifeSigns] = {}

    def answer(self, channel: ssl.SSLSocket) -> None:
        signs = {task: sign._asdict() for task, sign in self.signs.items()}
        channel.sendall(json_text.encode({"signs": signs}) + b"\n")
