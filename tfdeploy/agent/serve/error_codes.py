"""What serve answers when a verb raises: a code and a text. Errors of the disk and of permissions have codes of their own;
any exception that is not foreseen is `bug`, with its traceback."""

from __future__ import annotations

import errno
import os

from tfdeploy.agent.annotations import TYPE_CHECKING, Mapping
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.disk import free_of
from tfdeploy.agent.layout import NoPart
from tfdeploy.agent.ownership import NotOurs, explain

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Failure

NO_LOCKS = "local_workdir"
_CODES = {  # errno -> code, advice
    errno.ENOSPC: ("disk", "free_disk"),
    errno.EDQUOT: ("disk", "free_quota"),
    errno.EROFS: ("read_only", "writable_workdir"),
    errno.EACCES: ("permission", "give_access"),
    errno.EPERM: ("permission", "give_access"),
    errno.ENOLCK: ("refused", NO_LOCKS),
    errno.ENOSYS: ("refused", NO_LOCKS),
    errno.EOPNOTSUPP: ("refused", NO_LOCKS),
}


def failure_of(error: BaseException) -> Failure:
    """{"code", "what", "where", "advice", "details"}."""
    if isinstance(error, NotOurs):
        what, advice, details = explain(error)
        error = VerbError("refused", what, where=error.path, advice=advice, details=details)
    if isinstance(error, OSError) and error.errno in _CODES:
        error = _system_error(error)
    if isinstance(error, NoPart):  # removed while the verb ran
        error = VerbError("unknown_run", str(error), advice="list_runs")
    if isinstance(error, VerbError):
        return {"code": error.code, "what": error.what, "where": error.where, "advice": error.advice, "details": error.details}
    import traceback

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    what = "the agent has a bug: %s: %s" % (type(error).__name__, error)
    return {"code": "bug", "what": what, "where": None, "advice": None, "details": {"traceback": "".join(lines)}}


def _system_error(error: OSError) -> VerbError:
    assert error.errno is not None
    code, advice = _CODES[error.errno]
    named = error.filename2 or error.filename
    path = os.fsdecode(named) if isinstance(named, (str, bytes)) else None
    what = "%s: %s" % (path, os.strerror(error.errno)) if path else os.strerror(error.errno)
    details: Mapping[str, object] = {"path": path, "errno": error.errno}
    if code == "disk" and path is not None:
        details = {**details, **free_of(path)}
    return VerbError(code, what, where=path, advice=advice, details=details)
