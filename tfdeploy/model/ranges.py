"""Names in ranges, n[01-16] or rack[1-2]n[1-3,7]: they unfold to names, and fold back for people to read.

Pure. A range is capped, so that a slip of the finger cannot name a million hosts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from tfdeploy.errors import UsageError

MAX_NAMES = 10_000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,9})(\D*)\Z", re.ASCII | re.DOTALL)


def is_range(text: str) -> bool:
    """Whether there are brackets with numbers in them, as opposed to a shell pattern like n[ab]."""
    return any(all(_SPAN.match(span) for span in inner.split(",")) for inner in _BRACKETS.findall(text))


def unfold(text: str, cap: int = MAX_NAMES) -> tuple[str, ...]:
    """All names of the text, in order. Raises UsageError: malformed, backwards, more than `cap` names."""
    pieces = _BRACKETS.split(text)
    if any(mark in piece for piece in pieces[::2] for mark in "[]"):
        raise UsageError(f"a bracket without its partner in {text!r}", next="write ranges like n[01-16] or n[1-3,7]")
    spans = [_spans(inner, text) for inner in pieces[1::2]]
    count = 1
    for choices in spans:
        count *= sum(high - low + 1 for low, high, _ in choices)
    if count > cap:
        raise UsageError(f"{text!r} names {count:,} hosts; at most {cap:,} are read", next="write a smaller range")
    numbers = [[f"{n:0{width}}" for low, high, width in choices for n in range(low, high + 1)] for choices in spans]
    literals = pieces[::2]
    return tuple(
        literals[0] + "".join(number + literal for number, literal in zip(chosen, literals[1:], strict=True))
        for chosen in itertools.product(*numbers)
    )


def _spans(inner: str, text: str) -> list[tuple[int, int, int]]:
    """(first, last, width) of each part between commas; width 0: no leading zeros."""
    found = []
    for part in inner.split(","):
        match = _SPAN.match(part)
        if match is None:
            raise UsageError(f"[{inner}] in {text!r} is not a range", next="write ranges like n[01-16] or n[1-3,7]")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise UsageError(f"[{inner}] in {text!r} runs backwards", next=f"write [{high}-{low}]")
        width = len(low) if low.startswith("0") else 0
        if len(high) > 1 and high.startswith("0") and len(high) != width:
            raise UsageError(
                f"[{inner}] in {text!r} mixes widths", next=f"give both ends the same width: [{low.zfill(len(high))}-{high}]"
            )
        found.append((int(low), int(high), width))
    return found


def fold(names: Iterable[str]) -> str:
    """The names as a person would write them: n1,gpu[03-10]. Order and every name are kept: unfolding gives them back."""
    groups: list[tuple[tuple[str, str, int], list[list[int]]]] = []  # (before, after, width), spans [first, last]
    for name in names:
        match = _NUMBERED.match(name)
        if match is None or set(name) & set("[],"):
            groups.append(((name, "", -1), []))
            continue
        digits, number = match[2], int(match[2])
        width = len(digits) if digits.startswith("0") else 0
        spans = _joinable(groups, (match[1], match[3]), digits)
        if spans is None:
            groups.append(((match[1], match[3], width), [[number, number]]))
        elif spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(_folded(key, spans) for key, spans in groups)


def _joinable(
    groups: list[tuple[tuple[str, str, int], list[list[int]]]], around: tuple[str, str], digits: str
) -> list[list[int]] | None:
    """The spans of the last group if the next name fits behind them."""
    if not groups:
        return None
    (before, after, width), spans = groups[-1]
    fits = (before, after) == around and width >= 0 and digits == f"{int(digits):0{width}}"
    return spans if fits and spans[-1][1] < int(digits) else None


def _folded(key: tuple[str, str, int], spans: list[list[int]]) -> str:
    before, after, width = key
    if not spans:
        return before
    texts = [f"{low:0{width}}" + (f"-{high:0{width}}" if high > low else "") for low, high in spans]
    single = len(spans) == 1 and spans[0][0] == spans[0][1]
    return before + (texts[0] if single else f"[{','.join(texts)}]") + after


def split_list(text: str) -> tuple[str, ...]:
    """The parts between commas, but not between the commas inside brackets; blanks around them go."""
    parts = re.findall(r"(?:\[[^\[\]]*\]|[^,])+", text)
    return tuple(part.strip() for part in parts if part.strip())
