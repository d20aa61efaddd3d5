"""Fold lists of names (n1 n2 n3 n7 -> n[1-3,7]), expand ranges (rack[1-2]n[1-3,7]), and find the
names that match patterns: `worker`, `worker:[0-2,5]`, `n*`, `gpu[03-10]`, separated by commas.

--task, --host, --limit and --exclude all use the syntax of patterns. Brackets always hold ranges of
numbers, never sets of characters. The number of names that ranges stand for is limited, so that a
typing error cannot produce a million hosts. All functions are pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TypeVar

from tfdeploy.errors import UsageError

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)\Z", re.DOTALL)
# Matches the address at the start of an error: "192.0.2.11:22: ".
_PLACE = re.compile(r"^\S+:\d+:? ")
_HOST = "\0"  # stands for the host's name while the errors of several hosts are compared
T = TypeVar("T")
V = TypeVar("V", bound=Hashable)


def fold_names(names: Iterable[str]) -> str:
    """Return the names as text such as 'n[01-16],big'. Names that differ only in their number are
    merged into one range. Names with a number come first, in order of first appearance."""
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
    """Return {key: list of its values} for pairs (key, value). The keys and the values have the
    order of the pairs."""
    groups: dict[V, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def group_equal(content_by_name: Mapping[str, V]) -> list[tuple[tuple[str, ...], V]]:
    """Return a pair (all names that have this content, the content) for each different content, in
    order of first appearance."""
    names_by_content = group_by_key((content, name) for name, content in content_by_name.items())
    return [(tuple(names), content) for content, names in names_by_content.items()]


def fold_errors(error_by_host: Mapping[str, str]) -> dict[str, str]:
    """Merge the errors that differ only in the host's own name and address. Return {text that names
    the hosts, such as "n[1-3]": their error}. A merged error has no address. `error_by_host`:
    {host: error}."""
    groups = group_equal(
        {host: replace_own_name(text, host) for host, text in error_by_host.items()}
    )
    folded = ((names, fold_names(names), text) for names, text in groups)
    return {
        shown: text.replace(_HOST, shown) if len(names) > 1 else error_by_host[names[0]]
        for names, shown, text in folded
    }


def replace_own_name(error: str, host: str, replacement: str = _HOST) -> str:
    """Return the error of a host without the host's address, and with `replacement` in place of the
    host's name."""
    own_name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w.-]*\w)")
    return own_name.sub(replacement, without_address(error))


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


MAX_NAMES = 10_000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)


def expand_ranges(text: str) -> tuple[str, ...]:
    """Return all names that the text stands for, in order. Raises UsageError if the text is
    malformed, a range runs backwards, or there are more than MAX_NAMES names."""
    pieces = _BRACKETS.split(text)
    if any(mark in piece for piece in pieces[::2] for mark in "[]"):
        raise UsageError(
            f"an unmatched bracket in {text!r}",
            next="write ranges like n[01-16] or n[1-3,7]",
        )
    spans = [_parse_spans(inner, text) for inner in pieces[1::2]]
    count = 1
    for choices in spans:
        # The count is capped, because an error message shows it, and Python refuses to convert a
        # number of 5,000 digits to text.
        count = min(10**15, count * sum(high - low + 1 for low, high, _ in choices))
    if count > MAX_NAMES:
        what = f"{text!r:.200} stands for {count:,} names; at most {MAX_NAMES:,} are allowed"
        raise UsageError(what, next="write a smaller range")
    numbers = [
        [f"{n:0{width}}" for low, high, width in choices for n in range(low, high + 1)]
        for choices in spans
    ]
    literals = pieces[::2]
    return tuple(
        literals[0]
        + "".join(number + literal for number, literal in zip(chosen, literals[1:], strict=True))
        for chosen in itertools.product(*numbers)
    )


def _parse_spans(inner: str, text: str) -> list[tuple[int, int, int]]:
    """Return (first, last, width) of each range in `inner`, the text between two brackets. If the
    width is 0, the numbers have no leading zeros. `text`: the whole pattern, for error messages."""
    spans = []
    for part in inner.split(","):
        match = _SPAN.match(part)
        if match is None:
            raise UsageError(
                f"[{inner}] in {text!r} is not a range",
                next="write ranges like n[01-16] or n[1-3,7]",
            )
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise UsageError(f"[{inner}] in {text!r} runs backwards", next=f"write [{high}-{low}]")
        width = len(low) if low.startswith("0") else 0
        if len(high) > 1 and high.startswith("0") and len(high) != width:
            raise UsageError(
                f"[{inner}] in {text!r} mixes widths",
                next=f"give both ends the same width: [{low.zfill(len(high))}-{high}]",
            )
        spans.append((int(low), int(high), width))
    return spans


def split_outside_brackets(text: str) -> tuple[str, ...]:
    """Split at commas, except those inside brackets, and strip blanks."""
    parts = re.findall(r"(?:\[[^\[\]]*\]|[^,])+", text)
    return tuple(part.strip() for part in parts if part.strip())


EXAMPLES = {"host": "n1,gpu[03-10],worker,n*", "task": "worker,ps:0,worker:[0-2,5],w*"}


def match_names(
    patterns: str,
    names: Sequence[str],
    groups: Mapping[str, Collection[str]],
    *,
    flag: str,
    kind: str,
    of: str = "",
) -> set[str]:
    """Return the `names` that the patterns match. `groups`: {name of a group: its members}. If a
    group and a name are equal, the name takes precedence.

    `flag`, `kind` ("host" or "task") and `of` (" of RUN") are only for error messages. Raises
    UsageError if a pattern is malformed or matches nothing.
    """
    parts = split_outside_brackets(patterns)
    if not parts:
        raise UsageError(
            "an empty pattern", where=f"{flag} {patterns!r}", next=f"{flag} {EXAMPLES[kind]}"
        )
    matching: set[str] = set()
    for part in parts:
        try:
            fitting = _match_pattern(part, names, groups)
        except UsageError as error:  # raised if the pattern is malformed
            raise UsageError(error.what, where=f"{flag} {patterns}", next=error.next) from None
        if not fitting:
            raise UsageError(
                f"{part!r} matches no {kind}{of}",
                where=f"{flag} {patterns}",
                next=_hint(part, names, groups, kind),
            )
        matching |= fitting
    return matching


def _match_pattern(
    pattern: str, names: Sequence[str], members_by_group: Mapping[str, Collection[str]]
) -> set[str]:
    if pattern in names:
        return {pattern}
    if pattern in members_by_group:
        return set(members_by_group[pattern])
    wanted = set(expand_ranges(pattern))
    globs = [text for text in wanted if "*" in text or "?" in text]
    return {
        name for name in names if name in wanted or any(fnmatchcase(name, text) for text in globs)
    }


def _hint(
    pattern: str, names: Sequence[str], members_by_group: Mapping[str, Collection[str]], kind: str
) -> str:
    import difflib  # imported here, because few calls need a hint

    near = difflib.get_close_matches(pattern, [*names, *members_by_group], n=1)
    known = f"the {kind}s are {fold_names(names)}"
    return f"did you mean {near[0]}? {known}" if near else known
