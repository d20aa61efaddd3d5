"""Recompile modules whose bytecode files were truncated when a disk was full. Without this, Python
would fail on such a file at every start, even after space is free again.

When a disk becomes full, Python before 3.13 does not notice that it has written only a part of a
bytecode file. A file that is shorter than a disk block is never truncated.
"""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader


def recompile_truncated_bytecode() -> None:
    """Change how this process imports modules from now on: if the bytecode of a module is
    truncated, Python deletes the bytecode file and compiles the source of the module."""
    original_get_code = SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        try:
            return original_get_code(self, fullname)
        # The errors that `marshal` raises for truncated bytecode.
        except (EOFError, TypeError, ValueError):
            # `cache_from_source` is imported only here, because few processes find truncated
            # bytecode.
            from importlib.util import cache_from_source

            try:
                os.unlink(cache_from_source(self.path))
            except OSError:
                pass
            return self.source_to_code(self.get_data(self.path), self.path)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
