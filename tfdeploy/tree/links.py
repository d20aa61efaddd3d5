"""Tell whether a link stays inside its tree. Reads the disk; opens nothing outside the tree."""

from __future__ import annotations

import os
import posixpath


def leads_out(top: str, path: str, target: str) -> bool:
    """True for a target that is absolute, leaves `top` by `..`, or leaves it through other links.

    `top`: absolute and without links; `path`: of the link, relative to it.
    """
    folder = posixpath.dirname(path)
    lexical = posixpath.normpath(posixpath.join(folder, target))
    if target.startswith("/") or lexical == ".." or lexical.startswith("../"):
        return True
    real = os.path.realpath(os.path.join(top, folder, target))
    return real != top and not real.startswith(top.rstrip("/") + "/")
