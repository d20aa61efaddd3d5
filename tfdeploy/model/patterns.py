"""Regular expressions that a person wrote: compiled, or one clear reason why not. Pure."""

from __future__ import annotations

import re
import warnings
from typing import AnyStr

MOST_CHARS = 1000  # re.compile takes seconds for a megabyte


def compiled(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Raises ValueError that says what is wrong. re's own warnings, as of `[[a]`, would stand amid what is shown."""
    if len(text) > MOST_CHARS:
        raise ValueError(f"it has {len(text):,} characters, and at most {MOST_CHARS:,} are taken")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
