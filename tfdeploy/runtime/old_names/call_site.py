"""Find the line of the program that uses a missing name, and whether the program catches the error.

The module searches the stack and the source of the program.

The functions are called only after a name was not found, so they may be slow.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from typing import Any, Iterator, Optional, Tuple

from . import removed_names

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FOREIGN = (_OURS, "<frozen ", os.path.dirname(os.__file__) + os.sep)
_INSTALLED = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
_CATCHING = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
)
_ASKING = frozenset({"hasattr", "getattr", "dir"})


def format_error(name: str) -> str:
    """Return the error message for a missing name. `name`: the name without the leading `tf.`."""
    where, instead = find_call_site(), removed_names.replacement_hint(name) or "nothing"
    return "%stf.%s is not in TensorFlow 2; in its place: %s" % (
        where + ": " if where else "",
        name,
        instead,
    )


def find_call_site() -> Optional[str]:
    """Return FILE:LINE of the innermost call in the program's own code; None if there is none.

    Code of tfdeploy, Python, TensorFlow and installed packages is not the program's own. FILE is
    relative to the working directory if the file is below that directory."""
    path, line = next(_walk_own_frames(), ("", 0))
    try:
        working_folder = os.getcwd() + os.sep
    except OSError:
        # The working directory has been deleted. Use "//" instead: no path begins with two slashes,
        # so no path is shortened.
        working_folder = os.sep * 2
    return (
        "%s:%d" % (path[len(working_folder) :] if path.startswith(working_folder) else path, line)
        if path
        else None
    )


def may_be_caught() -> bool:
    """Return True if the program may handle the error, by `try` or by a call such as `hasattr`.

    Also return True if the source cannot be read, so that the program gets the same error as
    without tfdeploy. An exception handler that ends with `raise` does not count."""
    asking = list(_walk_own_frames())
    unread = bool(asking) and _parse_source(asking[0][0]) is None
    return unread or any(_is_guarded(path, line) for path, line in asking)


def _walk_own_frames() -> Iterator[Tuple[str, int]]:
    tensorflow = getattr(sys.modules.get("tensorflow"), "__file__", None)
    foreign = _FOREIGN + ((os.path.dirname(tensorflow) + os.sep,) if tensorflow else ())
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(foreign) and not any(part in path for part in _INSTALLED):
            yield path, frame.f_lineno
        frame = frame.f_back


@functools.lru_cache(maxsize=None)
def _parse_source(path: str) -> Optional[ast.Module]:
    try:
        return ast.parse("".join(linecache.getlines(path))) if linecache.getlines(path) else None
    except (SyntaxError, ValueError):
        return None


def _is_guarded(path: str, line: int) -> bool:
    tree = _parse_source(path)
    return tree is not None and any(_is_guard(node, line) for node in ast.walk(tree))


def _is_guard(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.Try):
        within = any(_covers_line(each, line) for each in node.body)
        return within and any(_catches_missing_name(handler) for handler in node.handlers)
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", None) in _ASKING
        and _covers_line(node, line)
    )


def _catches_missing_name(handler: ast.ExceptHandler) -> bool:
    names = (
        {getattr(each, "id", None) for each in ast.walk(handler.type)}
        if handler.type is not None
        else _CATCHING
    )
    return bool(names & _CATCHING) and not isinstance(handler.body[-1], ast.Raise)


def _covers_line(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))
