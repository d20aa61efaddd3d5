"""Expand ranges of names, such as n[01-16] or rack[1-2]n[1-3,7]. folding.fold_names is the inverse.

Pure. The number of names is limited, so that a typing error cannot produce a million hosts.
"""

from __future__ import annotations

import itertools
import re

from tfdeploy.errors import UsageError

MAX_NAMES = 10_000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)


def expand_ranges(text: str) -> tuple[str, ...]:
    """Return all names that the text stands for, in order. Raises UsageError if the text is
    malformed, a range runs backwards, or there are more than MAX_NAMES names."""
    pieces = _BRACKETS.split(text)
    if any(mark in piece for piece in pieces[::2] for mark in "[]"):
        raise UsageError(
            f"a bracket without its partner in {text!r}",
            next="write ranges like n[01-16] or n[1-3,7]",
        )
    spans = [_parse_spans(inner, text) for inner in pieces[1::2]]
    count = 1
    for choices in spans:
        # Python refuses to convert a number of 5,000 digits to text, so the count is capped.
        count = min(10**15, count * sum(high - low + 1 for low, high, _ in choices))
    if count > MAX_NAMES:
        what = f"{text!r:.200} stands for {count:,} names; at most {MAX_NAMES:,} are read"
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
    """Return (first, last, width) of each range between commas. If the width is 0, the numbers have
    no leading zeros."""
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


def split_list(text: str) -> tuple[str, ...]:
    """Split at commas, except those inside brackets, and strip blanks."""
    parts = re.findall(r"(?:\[[^\[\]]*\]|[^,])+", text)
    return tuple(part.strip() for part in parts if part.strip())
