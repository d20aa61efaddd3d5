"""Find the number of training steps that a command requests. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

_COUNTED = "(?:steps?|iterations?|iters?)"
_GOAL = re.compile(
    rf"(?:(?:train|training|max|num|total|global|final|last|n)_{_COUNTED}|steps|iterations|iters)\Z"
)


def requested_steps(argv: Sequence[str]) -> int | None:
    """Return the number of training steps that a command requests. Return None if the command
    requests none, or two different numbers."""
    goals = set()
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        name, given, text = word.partition("=")
        if not name.startswith("-") or not _GOAL.match(name.lstrip("-").replace("-", "_")):
            continue
        number = (text if given else following).replace("_", "").replace(",", "")
        if number.isdecimal() and 0 < int(number) < 10**13:
            goals.add(int(number))
    return goals.pop() if len(goals) == 1 else None
