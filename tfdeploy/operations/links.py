"""The check between prepare and start: all hosts of the run reach each other, not only us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find import hosts_of
from tfdeploy.operations.outcomes import all_or_error
from tfdeploy.operations.verbs import ask_all
from tfdeploy.transport.seam import Fleet

WITHIN_S = 120.0
MOST_LINES = 10
_IN_WORDS = {"closed": "nobody listens"}


class Shut(NamedTuple):
    """A port of the run on `host` that `seen_from` does not reach."""

    seen_from: str
    host: str
    task: str  # "" for the mesh's port
    address: str  # with its port
    why: str


def check_links(fleet: Fleet, plan: Plan) -> None:
    """Raises Refused with the pairs and ports, or the error of a host that does not answer."""
    if len(plan.hosts) < 2:
        return
    answers = all_or_error("links", ask_all(fleet, plan, "run.links", timeout_s=WITHIN_S))
    shut = [Shut(seen_from=host, **each) for host, answer in answers.items() for each in answer["shut"]]
    if shut:
        raise refusal(shut, hosts_of(plan))


def refusal(shut: Sequence[Shut], hosts: Sequence[Host]) -> Refused:
    """One line for a host that no other reaches, one for each other pair."""
    pairs: dict[tuple[str, str], list[Shut]] = {}
    for each in shut:
        pairs.setdefault((each.seen_from, each.host), []).append(each)
    named = {host.name: host for host in hosts}
    alone = [name for name in named if len(hosts) > 2 and sum(to == name for _, to in pairs) == len(hosts) - 1]
    lines = [f"no other host reaches {name}: {_doors(_first_to(pairs, name))}" for name in alone]
    lines += [f"{seen_from} does not reach {to}: {_doors(doors)}" for (seen_from, to), doors in pairs.items() if to not in alone]
    more = [f"and {len(lines) - MOST_LINES} more pairs"] if len(lines) > MOST_LINES else []
    culprits = [named[name] for name in dict.fromkeys(to for _, to in pairs)]
    return Refused(
        "hosts reach this machine, but not each other:" + "".join(f"\n  {line}" for line in (*lines[:MOST_LINES], *more)),
        where=", ".join(host.name for host in culprits[:MOST_LINES]),
        next=f"open TCP ports {_ranges(culprits)} between the hosts (`ports:` of the inventory), or set `advertise:` of "
        f"{culprits[0].name} to an address that the others reach",
    )


def _first_to(pairs: Mapping[tuple[str, str], list[Shut]], name: str) -> list[Shut]:
    return next(doors for (_, to), doors in pairs.items() if to == name)


def _doors(doors: Sequence[Shut]) -> str:
    """ "no answer at 10.0.0.3:2222, 10.0.0.3:2223 (worker:1)" """
    said: dict[str, list[str]] = {}
    for each in doors:
        said.setdefault(_IN_WORDS.get(each.why, each.why), []).append(each.address + (f" ({each.task})" if each.task else ""))
    return "; ".join(f"{why} at {', '.join(addresses)}" for why, addresses in said.items())


def _ranges(hosts: Sequence[Host]) -> str:
    return ", ".join(dict.fromkeys(f"{low}-{high}" for low, high in (host.ports for host in hosts)))
