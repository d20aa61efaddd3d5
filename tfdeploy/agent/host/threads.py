"""Start threads, and report errors on a thread that must continue. For each kind of error, one
traceback is printed to standard error (minder.log)."""

from __future__ import annotations

import sys
import threading

from tfdeploy.agent.annotations import Any, Callable, Set, Tuple

_MAX_KINDS = 50  # limits the kinds of errors that are reported
_reported: Set[Tuple[str, str]] = set()


def start_thread(function: Callable[..., object], *args: Any) -> threading.Thread:
    """Call the function on a new thread, which does not keep the process alive. Raises RuntimeError
    or MemoryError if this user cannot start more threads now."""
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def print_error_once(activity: str) -> None:
    """Print the traceback of the exception that is being handled now. Do nothing if an exception of
    the same class was already printed for the same activity. Never raises an exception."""
    error_class = sys.exc_info()[0]
    error_kind = (activity, error_class.__name__ if error_class else "")
    if error_kind in _reported or len(_reported) >= _MAX_KINDS:
        return
    try:
        _reported.add(error_kind)
        import traceback

        sys.stderr.write("%s:\n%s" % (activity, traceback.format_exc()))
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - memory or disk may be full
        pass
