"""Compile regular expressions that users wrote, with clear errors, and let Ctrl-C interrupt a
match."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable
from typing import AnyStr, TypeVar

from tfdeploy.agent.metric_patterns import MOST_CHARS

# A line is long if it has more bytes or characters than this. Searching a long line may take long;
# a line of a megabyte may take a minute.
LONG_LINE = 4096
Found = TypeVar("Found")


def compile_user_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the compiled expression. Raises ValueError that says what is wrong.

    Warnings of `re`, as for `[[a]`, are suppressed, because they would appear in the middle of the
    output.
    """
    if len(text) > MOST_CHARS:
        raise ValueError(f"it has {len(text):,} characters, but {MOST_CHARS:,} is the maximum")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def search_interruptibly(longest_chars: int, search: Callable[[], Found]) -> Found:
    """Call `search`, which searches lines of at most `longest_chars` characters, and return its
    result. Call this in the main thread.

    While long lines are searched, Ctrl-C ends the whole process, because `re` may not check for
    signals before it has searched the whole line.
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
