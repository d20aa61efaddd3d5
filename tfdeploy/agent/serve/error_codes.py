"""Translates the exception of a verb to an answer with a code and a text. Disk and permission
errors have codes of their own. Any unexpected exception is a `bug`, with its traceback."""

from __future__ import annotations

import errno
import os

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.layout import HostPartMissing
from tfdeploy.agent.ownership import UntrustedPath, explain

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

NO_LOCKS = "local_workdir"
# errno -> (code of the error, name of the advice in model/advice.py that the user gets)
_CODES = {
    errno.ENOSPC: ("disk", "free_disk"),
    errno.EDQUOT: ("disk", "free_quota"),
    errno.EROFS: ("read_only", "writable_workdir"),
    errno.EACCES: ("permission", "give_access"),
    errno.EPERM: ("permission", "give_access"),
    errno.ENOLCK: ("refused", NO_LOCKS),
    errno.ENOSYS: ("refused", NO_LOCKS),
    errno.EOPNOTSUPP: ("refused", NO_LOCKS),
}


def failure_answer(error: BaseException, workdir: str = "") -> Answer:
    """Return the answer to an exception: {"code", "what", "where", "advice", "details"}. If a disk
    is full and the exception names no path, the answer names the path `workdir`."""
    if isinstance(error, UntrustedPath):
        what, advice, details = explain(error)
        error = VerbError("refused", what, where=error.path, advice=advice, details=details)
    if isinstance(error, OSError) and error.errno in _CODES:
        error = _system_error(error, workdir)
    if isinstance(error, HostPartMissing):  # the run was removed while the verb ran
        error = VerbError("unknown_run", str(error), advice="list_runs")
    if not isinstance(error, VerbError):
        import traceback

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        what = "the agent has a bug: %s: %s" % (type(error).__name__, error)
        error = VerbError("bug", what, details={"traceback": "".join(lines)})
    return {
        "code": error.code,
        "what": error.what,
        "where": error.where,
        "advice": error.advice,
        "details": error.details,
    }


def _system_error(error: OSError, workdir: str) -> VerbError:
    assert error.errno is not None
    code, advice = _CODES[error.errno]
    filename = error.filename2 or error.filename
    path = os.fsdecode(filename) if isinstance(filename, (str, bytes)) else None
    what = "%s: %s" % (path, os.strerror(error.errno)) if path else os.strerror(error.errno)
    details: Dict[str, object] = {"errno": error.errno}
    if code == "disk" and (path or workdir):
        from tfdeploy.agent.host.disk import free_space

        free = free_space(path or workdir)
        amount = "no inodes" if free.free_inodes == 0 else _format_size(free.free_bytes)
        what = "%s (%s free)" % (what if path else "no space left in %s" % workdir, amount)
        path = path or workdir
        details.update(free._asdict())
    details["path"] = path
    return VerbError(code, what, where=path, advice=advice, details=details)


def _format_size(count: int) -> str:
    return "%d MiB" % (count >> 20) if count >= 1 << 20 else "%d B" % count
