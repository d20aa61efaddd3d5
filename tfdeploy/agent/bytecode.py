"""Recompile modules whose bytecode files were truncated by a full disk. Otherwise Python would fail
on such a file at every start, even after space is free again.

Python before 3.13 does not notice that it wrote only a part of the file. A file shorter than a disk
block is never truncated.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader


def mend_truncated() -> None:
    """Recompile truncated bytecode of each module that this process imports from now on."""
    whole = SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        try:
            return whole(self, fullname)
        except (EOFError, TypeError, ValueError):  # errors of marshal
            _remove(self.path)
            return self.source_to_code(self.get_data(self.path), self.path)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _remove(source: str) -> None:
    folder, name = os.path.split(source)
    try:
        os.unlink(
            os.path.join(
                folder,
                "__pycache__",
                "%s.%s.pyc" % (name[: -len(".py")], sys.implementation.cache_tag),
            )
        )
    except OSError:
        pass
