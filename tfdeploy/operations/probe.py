"""Facts of every host. The probe is the only effect on hosts before the plan."""

from __future__ import annotations

from dataclasses import replace

from tfdeploy.errors import BadAnswer
from tfdeploy.model.answers.verb import Verb
from tfdeploy.model.events import Emit
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.operations.emit import emit_host, note
from tfdeploy.operations.outcomes import all_or_error, split
from tfdeploy.transport.protocols import Fleet, Session

PROBE = Verb("probe", HostFacts)


def probe(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    *,
    job: str | None,
    keep: tuple[str, ...] = (),
    setup: str | None = None,
    unused: tuple[Host, ...] = (),
    emit: Emit,
) -> dict[str, HostFacts]:
    """host name -> facts, or one error for all hosts that failed. `setup`: digest of the job's recipe, if it has one.

    `unused`: hosts without tasks that may hold a `keep`; one that gives no answer is only a warning.
    """
    names = [host.advertise or host.address for host in hosts]

    def ask(session: Session) -> HostFacts:
        host = session.host
        agent = session.agent()
        gpus = list(host.gpus) if isinstance(host.gpus, tuple) else host.gpus
        args = {"python": host.python, "ports": list(host.ports), "gpus": gpus, "keep": list(keep), "names": names}
        if job is not None:
            args["job"] = job
        if setup is not None:
            args["setup"] = setup
        facts = agent.call(PROBE, args)
        emit_host(emit, host.name, "connected")
        try:
            facts.refuse_nonsense(host.ports, names)
        except ValueError as error:
            raise BadAnswer(f"its answer to probe makes no sense: {error}", where=host.name) from error
        return replace(facts, host=host.name, clock_skew_s=agent.clock_skew_s)

    results = fleet.each((*hosts, *unused), ask)
    spare, silent = split({host.name: results.pop(host.name) for host in unused})
    facts = all_or_error("probe", results)
    for name, error in silent.items():
        words = f"{name} has no role in this mode, and whether it holds a newer `keep` is unknown: {error.what}"
        note(emit, words, level="warning", host=name)
    return {**facts, **spare}
