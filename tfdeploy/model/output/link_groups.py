"""Group failing links, to show them in few lines: one line for a host that no other host reaches,
and one line for hosts with the same trouble. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tfdeploy.model.output.rows import LinkRow
from tfdeploy.model.text.folding import fold_equal, fold_names
from tfdeploy.model.text.nexts import with_names, without_name

_FROM, _TO = "\1", "\2"  # placeholders for the names of a link's hosts in `fix`


class LinkGroup(NamedTuple):
    """Links with the same trouble. `subject`: which hosts do not reach which hosts, as text."""

    subject: str
    why: str
    fix: str
    ports: tuple[int, ...]
    ok: bool


_Trouble = tuple[str, str, bool]  # why, fix, ok


def group(links: Sequence[LinkRow]) -> list[LinkGroup]:
    """Return groups of the links that failed or are slow: those with a `why`."""
    asked: dict[str, set[str]] = {}  # target host -> source hosts
    pairs: dict[tuple[str, str], _Trouble] = {}
    ports: dict[tuple[str, str], list[int]] = {}
    for each in links:
        pair = (each["from"], each["to"])
        asked.setdefault(each["to"], set()).add(each["from"])
        if each["why"] is not None:
            fix = without_name(
                without_name(each["fix"] or "", each["to"], _TO), each["from"], _FROM
            )
            pairs.setdefault(pair, (each["why"], fix, each["ok"]))
            ports.setdefault(pair, []).append(each["port"])
    groups: list[LinkGroup] = []
    for trouble in dict.fromkeys(pairs.values()):
        groups += _groups_of_cause(
            trouble, [pair for pair, has in pairs.items() if has == trouble], asked, ports
        )
    return groups


def _groups_of_cause(
    trouble: _Trouble,
    pairs: list[tuple[str, str]],
    asked: dict[str, set[str]],
    ports: dict[tuple[str, str], list[int]],
) -> list[LinkGroup]:
    """Return the groups of these pairs of hosts, whose links all have this trouble."""
    why, fix, ok = trouble
    reaches = "reaches well" if ok else "reaches"
    alone = [to for to, sources in _by(pairs, 1).items() if 1 < len(sources) == len(asked[to])]
    groups = [
        (
            f"no other host {reaches} {fold_names(alone)}",
            [pair for pair in pairs if pair[1] in alone],
        )
    ]
    left = [pair for pair in pairs if pair[1] not in alone]
    by_source = _by(left, 0)
    all_targets = {
        source: {to for to, sources in asked.items() if source in sources} - set(alone)
        for source in by_source
    }
    mute = [
        source
        for source, targets in by_source.items()
        if 1 < len(targets) == len(all_targets[source])
    ]
    groups.append(
        (f"{fold_names(mute)} {reaches} no other host", [pair for pair in left if pair[0] in mute])
    )
    for sources, targets in fold_equal(
        {source: tuple(to) for source, to in by_source.items() if source not in mute}
    ):
        verb = ("does not reach" if len(sources) == 1 else "do not reach") + (
            " well:" if ok else ""
        )
        subject = f"{fold_names(sources)} {verb} {fold_names(targets)}"
        groups.append((subject, [(source, to) for source in sources for to in targets]))
    return [
        LinkGroup(
            subject,
            why,
            with_names(
                with_names(fix, (source for source, _ in chosen), _FROM),
                (to for _, to in chosen),
                _TO,
            ),
            tuple(sorted({port for pair in chosen for port in ports[pair]})),
            ok,
        )
        for subject, chosen in groups
        if chosen
    ]


def _by(pairs: Iterable[tuple[str, str]], side: int) -> dict[str, list[str]]:
    """Return the names on one side of the pairs, each with the names on the other side."""
    names_by_key: dict[str, list[str]] = {}
    for pair in pairs:
        names_by_key.setdefault(pair[side], []).append(pair[1 - side])
    return names_by_key
