"""Compile the regular expressions of users, with clear errors, and let Ctrl-C end a slow search."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable
from typing import AnyStr, TypeVar

from tfdeploy.agent.metric_patterns import MOST_CHARS

# A line is long if it has more bytes or characters than this. Searching a line of a megabyte may
# take a minute.
LONG_LINE = 4096
Found = TypeVar("Found")


def compile_user_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the compiled expression. Raises ValueError, which says what is wrong.

    Warnings of `re`, as for `[[a]`, are suppressed, because they would appear in the middle of the
    output.
    """
    if len(text) > MOST_CHARS:
        raise ValueError(f"{len(text):,} characters are too many: the maximum is {MOST_CHARS:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def search_interruptibly(longest_chars: int, search: Callable[[], Found]) -> Found:
    """Call `search` and return its result. Call this function in the main thread.

    `longest_chars`: the length of the longest line that `search` reads. If this line is long,
    Ctrl-C ends the whole process at once, without KeyboardInterrupt: Python would raise that only
    after `re` has searched the whole line.
    """
    if (
        longest_chars <= LONG_LINE
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        return search()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return search()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
