"""Check whether a symbolic link stays inside its tree.

This module reads links on the disk, and opens no file.
"""

from __future__ import annotations

import os
import posixpath


def link_leads_outside(top: str, path: str, target: str) -> bool:
    """True if the link's target is absolute, or leaves `top` by `..` or through other links.

    `top`: an absolute path without links. `path`: the path of the link, relative to `top`.
    `target`: the text of the link.
    """
    folder = posixpath.dirname(path)
    lexical = posixpath.normpath(posixpath.join(folder, target))
    if target.startswith("/") or lexical == ".." or lexical.startswith("../"):
        return True
    real = os.path.realpath(os.path.join(top, folder, target))
    return real != top and not real.startswith(top.rstrip("/") + "/")
