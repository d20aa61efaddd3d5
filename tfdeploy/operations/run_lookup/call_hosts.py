"""Call one verb on every host of a run, and call a host again if its reply was lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import TypeVar

from tfdeploy.errors import HostUnreachable
from tfdeploy.model.plan import Plan
from tfdeploy.operations.retry import each_with_retries
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.text.typed import Args, Verb
from tfdeploy.transport.protocols import Fleet, Outcomes, Session

V = TypeVar("V")
NO_ARGS: Args = MappingProxyType({})


def call_all(
    fleet: Fleet,
    plan: Plan,
    verb: Verb[V],
    args: Args = NO_ARGS,
    *,
    blob: Callable[[str], bytes] | None = None,
    timeout_s: float = 60.0,
    retry: bool = True,
    patience_s: float | None = None,
    only_hosts: Collection[str] | None = None,
) -> Outcomes[V]:
    """Return each host's value or error, by host name.

    `args` are the arguments of the verb except those that name the run. `blob` takes a host's name
    and returns the bytes to send to that host. `only_hosts`: call only these hosts of the run. The
    verb must be idempotent, because an unreachable host is called once more (unless `retry` is
    false). If `patience_s` is given, calls are repeated as in `each_with_retries`.
    """

    def ask(session: Session) -> V:
        call_args = {**plan.run_args, **args}
        return session.agent().call(
            verb, call_args, blob=blob(session.host.name) if blob else b"", timeout_s=timeout_s
        )

    hosts = hosts_of(plan, only_hosts)
    if patience_s is not None:
        return each_with_retries(fleet, hosts, ask, patience_s=patience_s)
    results = fleet.each(hosts, ask)
    unreachable = tuple(host for host in hosts if isinstance(results[host.name], HostUnreachable))
    if unreachable and retry:
        results.update(fleet.each(unreachable, ask))
    return results
