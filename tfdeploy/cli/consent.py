"""Ask the operator for consent before tfdeploy overrides or removes something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdeploy.ui.question import confirm

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags


def make_confirm(flags: CommonFlags) -> Callable[[str], bool]:
    """Return a function that asks the operator a question and remembers the answer.

    With -y, the answer is always yes. Otherwise, with --json or without a terminal, it is always
    no.
    """

    @lru_cache(maxsize=64)
    def agree(question: str) -> bool:
        if flags.yes:
            return True
        if flags.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        return confirm(question)

    return agree
