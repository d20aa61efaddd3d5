"""Shorten lists of names (n1 n2 n3 n7 -> n[1-3,7]), and group names by equal content. Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from itertools import groupby
from typing import TypeVar

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)\Z", re.DOTALL)
# Matches the address at the start of an error: "192.0.2.11:22: ".
_PLACE = re.compile(r"^\S+:\d+:? ")
_HOST = "\0"  # placeholder for a host's name
T = TypeVar("T")
V = TypeVar("V", bound=Hashable)


def fold_names(names: Iterable[str]) -> str:
    """Return the names as text such as 'n[01-16],big'. Numbered names that share the text around
    the number become one range expression, in order of first appearance."""
    stems: dict[tuple[str, str, int], list[str]] = {}
    plain = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.match(name)
        if match is None:
            plain.append(name)
        else:
            digits = len(match[2])
            zeros = digits > 1 and match[2].startswith("0")
            # A number without a leading zero joins numbers that have leading zeros and the same
            # width: 10 joins 08 and 09.
            width = digits if zeros or (match[1], match[3], digits) in stems else 0
            stems.setdefault((match[1], match[3], width), []).append(match[2])
    folded = [_fold_stem(*stem, numbers) for stem, numbers in stems.items()]
    return ",".join([*folded, *plain])


def group_by_key(pairs: Iterable[tuple[V, T]]) -> dict[V, list[T]]:
    """Return key -> its values, for pairs (key, value), in order of first appearance."""
    groups: dict[V, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def group_equal(contents: Mapping[str, V]) -> list[tuple[tuple[str, ...], V]]:
    """Return groups of names with equal content, in order of first appearance."""
    names_by_content = group_by_key((content, name) for name, content in contents.items())
    return [(tuple(names), content) for content, names in names_by_content.items()]


def fold_errors(errors: Mapping[str, str]) -> dict[str, str]:
    """Return {names of hosts, folded into one text: their error}. If the errors of several hosts
    differ only in the host's own name and address, they are merged into one error without an
    address. `errors`: host -> error."""
    groups = group_equal({host: replace_own_name(text, host) for host, text in errors.items()})
    folded = ((names, fold_names(names), text) for names, text in groups)
    return {
        shown: text.replace(_HOST, shown) if len(names) > 1 else errors[names[0]]
        for names, shown, text in folded
    }


def replace_own_name(error: str, host: str, mark: str = _HOST) -> str:
    """Return the error of a host without the host's address, and with `mark` as its name."""
    own_name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w.-]*\w)")
    return own_name.sub(mark, without_address(error))


def without_address(error: str) -> str:
    """Return the error of a host without the host's address, so that equal errors of several hosts
    become one line."""
    return _PLACE.sub("", error)


def _fold_stem(prefix: str, suffix: str, width: int, digits: list[str]) -> str:
    if len(digits) == 1:
        return f"{prefix}{digits[0]}{suffix}"
    numbers = enumerate(sorted(map(int, digits)))
    parts = []
    for _, run in groupby(numbers, key=lambda pair: pair[1] - pair[0]):
        first, *others = (f"{number:0{width}}" for _, number in run)
        parts.append("-".join([first, *others[-1:]]))
    return f"{prefix}[{','.join(parts)}]{suffix}"
