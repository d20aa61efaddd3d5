"""One verb of the agent on every host of a run, asked again where the reply was lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.answers.verb import Args, Verb
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.persist import persist
from tfdeploy.transport.protocols import Fleet, Session

V = TypeVar("V")


def ask_all(
    fleet: Fleet,
    plan: Plan,
    verb: Verb[V],
    args: Mapping[str, Args] | None = None,
    *,
    blob: Callable[[str], bytes] | None = None,
    timeout_s: float = 60.0,
    again: bool = True,
    patience_s: float | None = None,
    only: Collection[str] | None = None,
) -> dict[str, V | TfdeployError]:
    """host -> value or error. `args`: more arguments by host; `blob`: of the host's name. `only`: these hosts alone. The verb is
    idempotent: an unreachable host is connected to and asked once more, or with `patience_s` as often as `persist` does."""

    def ask(session: Session) -> V:
        host = session.host.name
        whole = {"run": plan.run, "job": plan.job, **(args or {}).get(host, {})}
        return session.agent().call(verb, whole, blob=blob(host) if blob else b"", timeout_s=timeout_s)

    hosts = tuple(host for host in hosts_of(plan) if only is None or host.name in only)
    if patience_s is not None:
        return persist(fleet, hosts, ask, patience_s=patience_s)
    results = fleet.each(hosts, ask)
    silent = tuple(host for host in hosts if isinstance(results[host.name], HostUnreachable))
    if silent and again:
        results.update(fleet.each(silent, ask))
    return results
