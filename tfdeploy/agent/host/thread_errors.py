"""Report errors on a thread that must continue. For each kind of error, one traceback is printed to
standard error (minder.log)."""

from __future__ import annotations

import sys

from tfdeploy.agent.annotations import Set, Tuple

_MOST = 50  # limits the kinds of errors that are reported
_told: Set[Tuple[str, str]] = set()


def report_once(activity: str) -> None:
    """Print the traceback of the exception that is being handled now. Do nothing if an error of
    this kind was printed for this activity before. Never raises an exception."""
    kind = sys.exc_info()[0]
    what = (activity, kind.__name__ if kind else "")
    if what in _told or len(_told) >= _MOST:
        return
    try:
        _told.add(what)
        import traceback

        sys.stderr.write("%s:\n%s" % (activity, traceback.format_exc()))
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - no memory, a full disk
        pass
