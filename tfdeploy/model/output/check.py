"""Define the results of a preflight: checks of each host, and the links between hosts. Group
failing links, to show them in few lines: one line for a host that no other host reaches, and one
line for hosts with the same trouble. The functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tfdeploy.model.output.rows import CheckedHostRow, CheckRow, LinkRow
from tfdeploy.text.names import fold_names, group_equal
from tfdeploy.text.nexts import insert_host_names, replace_host_name
from tfdeploy.text.row_values import copy_fields

Level = Literal["error", "warning"]


class Check(NamedTuple):
    """One check of one host. `level` and `fix` are meaningful only if `ok` is false. `fix`: a
    command to type, or what to write."""

    check: str
    ok: bool = True
    level: Level = "error"
    detail: str = ""
    fix: str | None = None

    @property
    def is_error(self) -> bool:
        return not self.ok and self.level == "error"


@dataclass(frozen=True)
class LinkResult:
    """A link from a host to a port of another host. If `ok` is true and there is a `why`, the link
    works but is slow."""

    from_host: str
    to_host: str
    port: int
    ok: bool = True
    why: str | None = None
    fix: str | None = None
    ms: float | None = None
    mbit_s: float | None = None


class PreflightResult(NamedTuple):
    """All results of a preflight. `unreached`: hosts to which there is no SSH session."""

    hosts: Mapping[str, tuple[Check, ...]]
    links: tuple[LinkResult, ...] = ()
    unreached: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        return all(each.ok for each in self.links) and not any(
            each.is_error for checks in self.hosts.values() for each in checks
        )

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing is wrong, 1 if something is, 4 if a host was not reached."""
        return 4 if self.unreached else 0 if self.ok else 1


def host_rows(checked: PreflightResult) -> list[CheckedHostRow]:
    """Return the rows of `check --json`. A host is `ok` even if it has warnings."""
    return [
        {
            "host": host,
            "ok": not any(each.is_error for each in host_checks),
            "checks": [copy_fields(CheckRow, each) for each in host_checks],
        }
        for host, host_checks in checked.hosts.items()
    ]


def link_rows(checked: PreflightResult) -> list[LinkRow]:
    return [
        copy_fields(LinkRow, link, **{"from": link.from_host, "to": link.to_host})
        for link in checked.links
    ]


# In the text `fix` of a link, these placeholders stand for the names of the link's two hosts.
_FROM, _TO = "\1", "\2"


class LinkGroup(NamedTuple):
    """Links with the same trouble. `subject`: which hosts do not reach which hosts, as text."""

    subject: str
    why: str
    fix: str
    ports: tuple[int, ...]
    ok: bool


_Trouble = tuple[str, str, bool]  # why, fix, ok
_Pair = tuple[str, str]  # source, target


def group_links(links: Sequence[LinkRow]) -> list[LinkGroup]:
    """Group the links that have a `why`, that is, the links that failed or are slow."""
    tested = {(each["from"], each["to"]) for each in links}
    ports: dict[_Trouble, dict[_Pair, set[int]]] = {}
    troubles: dict[_Pair, _Trouble] = {}
    for each in links:
        pair = source, target = each["from"], each["to"]
        if each["why"] is not None:
            fix = replace_host_name(
                replace_host_name(each["fix"] or "", target, _TO), source, _FROM
            )
            trouble = troubles.setdefault(pair, (each["why"], fix, each["ok"]))
            ports.setdefault(trouble, {}).setdefault(pair, set()).add(each["port"])
    return [
        group
        for trouble, ports_by_pair in ports.items()
        for group in _groups_of_trouble(trouble, ports_by_pair, tested)
    ]


def _groups_of_trouble(
    trouble: _Trouble, ports: Mapping[_Pair, set[int]], tested: set[_Pair]
) -> Iterator[LinkGroup]:
    """Yield groups of the links that failed, or are slow, for the same reason (`trouble`). `ports`:
    {(source, target): the ports of the links between these hosts that have this trouble}. `tested`:
    all pairs of hosts that were tested."""
    why, fix, ok = trouble
    reaches = "reaches well" if ok else "reaches"
    unreached = _hosts_always_failing(ports, tested, 1)
    groups = {
        f"no other host {reaches} {fold_names(unreached)}": _pairs_with_host(ports, 1, unreached)
    }
    pairs = [pair for pair in ports if pair[1] not in unreached]
    mute = _hosts_always_failing(pairs, {pair for pair in tested if pair[1] not in unreached}, 0)
    groups[f"{fold_names(mute)} {reaches} no other host"] = _pairs_with_host(pairs, 0, mute)
    targets_by_source: dict[str, tuple[str, ...]] = {}
    for source, target in pairs:
        if source not in mute:
            targets_by_source[source] = (*targets_by_source.get(source, ()), target)
    for sources, targets in group_equal(targets_by_source):
        verb = f"do{'es' if len(sources) == 1 else ''} not reach{' well:' if ok else ''}"
        subject = f"{fold_names(sources)} {verb} {fold_names(targets)}"
        groups[subject] = _pairs_with_host(pairs, 0, sources)
    for subject, chosen in groups.items():
        if chosen:
            named_fix = insert_host_names(fix, (source for source, _ in chosen), _FROM)
            named_fix = insert_host_names(named_fix, (target for _, target in chosen), _TO)
            all_ports = set[int]().union(*(ports[pair] for pair in chosen))
            yield LinkGroup(subject, why, named_fix, tuple(sorted(all_ports)), ok)


def _hosts_always_failing(failed: Iterable[_Pair], tested: Iterable[_Pair], side: int) -> list[str]:
    """Return each host that was tested in at least two pairs, all of which failed. `side`: 0 to
    count the pairs whose source is the host, 1 to count the pairs whose target is the host."""
    counts = Counter(pair[side] for pair in failed)
    all_counts = Counter(pair[side] for pair in tested)
    return [name for name, count in counts.items() if 1 < count == all_counts[name]]


def _pairs_with_host(pairs: Iterable[_Pair], side: int, hosts: Collection[str]) -> list[_Pair]:
    return [pair for pair in pairs if pair[side] in hosts]
