"""Who feeds whom in a broadcast, as a few lines of text: "here > n1 > n2", a branch for each further child. Pure.

What does not fit is counted: "(14 hosts)". Hosts in `named` are never among those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tfdeploy.ui.amounts import count
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cells

ARROW = " > "
NAME_CELLS = 24


def feed_tree(feeds: Iterable[tuple[str, str]], *, width: int, most: int, named: Collection[str] = ()) -> list[str]:
    """`feeds`: (parent, child) of one stripe, "" for this machine. At most so many lines, each at most `width` columns."""
    children: dict[str, list[str]] = {}
    for parent, child in feeds:
        children.setdefault(parent, []).append(child)
    tops = _tops(children)
    deepest = _depth(children, tops)
    for shown, least in ((named, 1), ((), 0)):  # where even the named ones are too many, all are counted
        for depth in range(deepest, least - 1, -1):
            lines = [line for top in tops for line in _Lines(children, shown, width, depth).of(top)]
            if len(lines) <= most:
                return lines
    return lines[:most]


class _Lines:
    """`deepest`: hosts with so many above them are counted, not named."""

    def __init__(self, children: Mapping[str, list[str]], named: Collection[str], width: int, deepest: int) -> None:
        self._children, self._named, self._width, self._deepest = children, frozenset(named), width, deepest
        self._size = _sizes(children)
        self._above = _with_all_above(children, named)

    def of(self, top: str, depth: int = 0, room: int | None = None) -> list[str]:
        """A host and all below it: a row of only children, then a line for each branch."""
        room = self._width if room is None else room
        row, hidden = [top], 0
        while True:
            below = self._children.get(row[-1], [])
            shown = [child for child in below if not self._is_folded(child, depth + len(row))]
            hidden += sum(self._size.get(child, 1) for child in below if child not in shown)
            if len(shown) != 1:
                break
            row += shown
        lines = [_one_line(row, f"({count(hidden, 'host')})" if hidden else "", room, self._named)]
        for number, child in enumerate(shown):
            is_last = number == len(shown) - 1
            branch = self.of(child, depth + len(row), room - 3)
            lines.append(("`- " if is_last else "|- ") + branch[0])
            lines += [("   " if is_last else "|  ") + line for line in branch[1:]]
        return lines

    def _is_folded(self, host: str, depth: int) -> bool:
        return depth >= self._deepest and host not in self._above


def _tops(children: Mapping[str, list[str]]) -> list[str]:
    """Return those that nobody feeds."""
    fed = {child for each in children.values() for child in each}
    return [parent for parent in children if parent not in fed]


def _sizes(children: Mapping[str, list[str]]) -> dict[str, int]:
    """Hosts below each one that feeds others, itself included."""
    order = _tops(children)
    for host in order:  # it grows meanwhile: each host behind its parent
        order += children.get(host, ())
    size: dict[str, int] = {}
    for host in reversed(order):
        size[host] = 1 + sum(size[child] for child in children.get(host, ()))
    return size


def _with_all_above(children: Mapping[str, list[str]], named: Iterable[str]) -> set[str]:
    parents = {child: parent for parent, each in children.items() for child in each}
    found: set[str] = set()
    for host in named:
        while host not in found:
            found.add(host)
            host = parents.get(host, host)
    return found


def _depth(children: Mapping[str, list[str]], tops: Iterable[str]) -> int:
    level, depth = list(tops), 0
    while level:
        level = [child for each in level for child in children.get(each, ())]
        depth += 1
    return depth


def _one_line(row: list[str], end: str, room: int, named: Collection[str]) -> str:
    """The row, with hosts in its middle counted where it is too long."""
    words = [clean(name, NAME_CELLS) if name else "here" for name in row]
    tail = [end] if end else []
    line = ARROW.join([*words, *tail])
    first, last = 1, len(words) - 1  # what is counted: words[first:last]
    if cells(line) <= room or last - first < 1:
        return line[:room]
    keep = {number for number, name in enumerate(row) if name in named or number in (0, last)}
    for number in [*range(1, 4), *range(last - 1, 0, -1), *range(4, last)]:
        if cells(ARROW.join(_folded(words, keep | {number}) + tail)) <= room:
            keep.add(number)
        elif number > 3:
            break
    return ARROW.join(_folded(words, keep) + tail)[:room]


def _folded(words: list[str], keep: Collection[int]) -> list[str]:
    found: list[str] = []
    skipped = 0
    for number, word in enumerate(words):
        if number not in keep:
            skipped += 1
            continue
        if skipped:
            found.append(f"({count(skipped, 'host')})")
        skipped = 0
        found.append(word)
    return found
