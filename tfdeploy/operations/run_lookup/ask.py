"""One verb of the agent called on every host of a run, and once more where the reply was lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.answers.verb import Args, Verb
from tfdeploy.model.plan import Plan
from tfdeploy.operations.retry import each_with_retries
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.transport.protocols import Fleet, Session

V = TypeVar("V")
NO_ARGS: Args = MappingProxyType({})


def ask_all(
    fleet: Fleet,
    plan: Plan,
    verb: Verb[V],
    args: Args = NO_ARGS,
    *,
    blob: Callable[[str], bytes] | None = None,
    timeout_s: float = 60.0,
    retry: bool = True,
    patience_s: float | None = None,
    only: Collection[str] | None = None,
) -> dict[str, V | TfdeployError]:
    """Return host -> value or error. `args`: beside the run; `blob`: host name -> bytes; `only`:
    call these hosts alone.

    The verb must be idempotent: an unreachable host is called once more (with `patience_s`: as
    `each_with_retries` does).
    """

    def ask(session: Session) -> V:
        call_args = {"run": plan.run, "job": plan.job, **args}
        return session.agent().call(
            verb, call_args, blob=blob(session.host.name) if blob else b"", timeout_s=timeout_s
        )

    hosts = hosts_of(plan, only)
    if patience_s is not None:
        return each_with_retries(fleet, hosts, ask, patience_s=patience_s)
    results = fleet.each(hosts, ask)
    unreachable = tuple(host for host in hosts if isinstance(results[host.name], HostUnreachable))
    if unreachable and retry:
        results.update(fleet.each(unreachable, ask))
    return results
