"""Bytecode that a full disk cut short is compiled again: Python would fail at it in each start, also when there is room again.

Python before 3.13 does not notice that only a part of it was written. What is shorter than a block of a disk is never cut.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader


def mend_truncated() -> None:
    """For all that this process imports from now on."""
    whole = SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        try:
            return whole(self, fullname)
        except (EOFError, TypeError, ValueError):  # as marshal says it
            _remove(self.path)
            return self.source_to_code(self.get_data(self.path), self.path)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _remove(source: str) -> None:
    folder, name = os.path.split(source)
    try:
        os.unlink(os.path.join(folder, "__pycache__", "%s.%s.pyc" % (name[: -len(".py")], sys.implementation.cache_tag)))
    except OSError:
        pass
