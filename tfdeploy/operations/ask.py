"""One verb of the agent called on every host of a run, and once more where the reply was lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.answers.verb import Args, Verb
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.retry import each_with_retries
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
    retry: bool = True,
    patience_s: float | None = None,
    only: Collection[str] | None = None,
) -> dict[str, V | TfdeployError]:
    """host -> value or error. `args`: host -> more arguments; `blob`: host name -> bytes; `only`: call these hosts alone.

    The verb must be idempotent: an unreachable host is called once more (with `patience_s`: as `each_with_retries` does).
    """

    def ask(session: Session) -> V:
        host = session.host.name
        call_args = {"run": plan.run, "job": plan.job, **(args or {}).get(host, {})}
        return session.agent().call(verb, call_args, blob=blob(host) if blob else b"", timeout_s=timeout_s)

    hosts = tuple(host for host in hosts_of(plan) if only is None or host.name in only)
    if patience_s is not None:
        return each_with_retries(fleet, hosts, ask, patience_s=patience_s)
    results = fleet.each(hosts, ask)
    unreachable = tuple(host for host in hosts if isinstance(results[host.name], HostUnreachable))
    if unreachable and retry:
        results.update(fleet.each(unreachable, ask))
    return results
