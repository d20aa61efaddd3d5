"""Probe hosts: read the facts that a plan or a preflight needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tfdeploy.errors import BadAnswer
from tfdeploy.model.events import Emit
from tfdeploy.model.facts import PROBE, HostFacts
from tfdeploy.model.inventory import Host, Hosts
from tfdeploy.operations.emit import emit_host_state, emit_warning
from tfdeploy.operations.outcomes import split_outcomes, values_or_error
from tfdeploy.text.allowed import is_ip
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import Fleet, Session


@dataclass(frozen=True)
class ProbeQuestions:
    """The arguments of the probe that are the same for all hosts.

    - `names`: for each host, the name or address at which the others reach it.
    - `setup`: the digest of the job's Python environment, if the job has one.
    - `preflight`: also read the facts that only a preflight needs.
    - `firewall`: also test what nft can do. On the host, sudo writes this test to its log.
    - `resolve`: those of `names` that each host must be able to resolve.
    - `program`: the first word of the command, if it must be on PATH.
    - `modules`: the Python modules that the program imports.
    - `python`: the interpreter that the command names, if any. It is ignored if `setup` is set.
    """

    names: tuple[str, ...]
    job: str | None = None
    keep: tuple[str, ...] = ()
    setup: str | None = None
    preflight: bool = False
    firewall: bool = False
    resolve: tuple[str, ...] = ()
    program: str | None = None
    modules: tuple[str, ...] = ()
    python: str = ""

    @classmethod
    def for_hosts(cls, hosts: Hosts, **more: Any) -> ProbeQuestions:
        names = tuple(
            host.advertise
            for host in hosts
            if host.advertise and not is_ip(host.advertise.strip("[]"))
        )
        return cls(tuple(host.advertise or host.address for host in hosts), resolve=names, **more)

    def args(self, host: Host) -> Args:
        """Return the arguments for one host."""
        return {
            **vars(self),
            "python": (not self.setup and self.python) or host.python,
            "ports": host.ports,
            "gpus": host.gpus,
        }


def probe_host(session: Session, questions: ProbeQuestions, emit: Emit) -> HostFacts:
    """Return the facts of one host.

    Raises BadAnswer for invalid facts, and the errors of an agent call.
    """
    host, agent = session.host, session.agent()
    facts = agent.call(PROBE, questions.args(host))
    emit_host_state(emit, host.name, "connected")
    try:
        facts.refuse_unrequested_facts(host.ports, questions.names, questions.modules)
        if questions.preflight and facts.preflight is None:
            raise ValueError("the facts for the preflight are missing")
    except ValueError as error:
        what = f"the host's answer to probe is invalid: {error}"
        raise BadAnswer(what, where=host.name) from error
    return replace(facts, host=host.name, clock_skew_s=agent.clock_skew_s)


def probe(
    fleet: Fleet,
    hosts: Hosts,
    questions: ProbeQuestions,
    *,
    unused_hosts: Hosts = (),
    emit: Emit,
) -> dict[str, HostFacts]:
    """Return each host's facts by name, or raise one error for all hosts that failed.

    `unused_hosts` are hosts that have no tasks but may hold checkpoints (`keep`). If an unused host
    does not answer, only a warning is emitted.
    """
    results = fleet.each(
        (*hosts, *unused_hosts), lambda session: probe_host(session, questions, emit)
    )
    spare, silent = split_outcomes({host.name: results.pop(host.name) for host in unused_hosts})
    facts = values_or_error("probe", results)
    for name, error in silent.items():
        text = (
            f"{name} has no role in this mode, but may have newer checkpoints in `keep`. tfdeploy "
            f"cannot find out: {error.what}"
        )
        emit_warning(emit, text, host=name)
    return {**facts, **spare}
