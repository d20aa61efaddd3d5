"""Define every error that a user can see, and its exit code.

    TfdeployError                 what, where, next; never printed with a traceback
     +-- UsageError          2    invalid arguments on the command line, unknown run
     |    +-- ConfigError    2    error in the inventory or job file, with file:line:key
     +-- Refused             3    refused before acting: python, rsync, disk, port, live run, lock
     |    +-- PortTaken      3    a planned port was taken before prepare: probe and plan again
     +-- HostUnreachable     4    no session: network, host key, authentication
     +-- HostFailed          1    a verb failed on a host that was reached
     |    +-- AgentError     1    the agent reported an error; exit code 3 if it refused
     |    +-- BadAnswer      1    the host's answer is invalid or does not fit the request
     +-- RunFailed           1    the run failed, or did not start completely
     +-- SurvivorsLeft       5    stop could not end all processes
     +-- Interrupted       130    the command, for example by Ctrl-C, ended a transfer of files

Any other exception that reaches the command line is a bug: exit code 70, with its traceback.
`worst_exit_code` reduces several results to one exit code. This module also runs on hosts, so it
has only the syntax of Python 3.8 and imports only the standard library.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional


class TfdeployError(Exception):
    """An error with what happened, where (file:line:key, host or task), and what to type next."""

    exit_code = 1

    def __init__(
        self, what: str, *, where: Optional[str] = None, next: Optional[str] = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next = next

    def __str__(self) -> str:
        """Return `what` without control characters, which it may have from a host or a program: a
        traceback or a notebook prints this text as it is. Line breaks, tabs and blanks of other
        scripts stay, because they separate words."""
        return "".join(char for char in self.what if char.isprintable() or char in "\n\t\xa0\u3000")

    def as_json(self) -> Dict[str, Any]:
        """Return the JSON form that docs/error-codes.md describes.

        It is {"error": {"code", "what", "where", "next"}}.
        """
        return {
            "error": {
                "code": self.exit_code,
                "what": self.what,
                "where": self.where,
                "next": self.next,
            }
        }


class UsageError(TfdeployError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class Refused(TfdeployError):
    exit_code = 3


class PortTaken(Refused):
    pass


class HostUnreachable(TfdeployError):
    exit_code = 4

    def __init__(
        self,
        what: str,
        *,
        where: Optional[str] = None,
        next: Optional[str] = None,
        retries: int = 3,
    ) -> None:
        """Create the error. `where`: the host's name. If it is given and `next` is None, the error
        tells the user how to test the connection to the host, and how to leave the host out.

        `retries`: how many more attempts to connect may help. Only some verbs retry.
        """
        self.retries = retries
        again = (
            "`tfdeploy exec --limit %s -- true` shows when the host can be reached; then run the "
            "same command again, " % where
        )
        again += "or leave the host out: --exclude %s" % where
        super().__init__(what, where=where, next=next or (again if where else None))


class HostFailed(TfdeployError):
    exit_code = 1


class AgentError(HostFailed):
    """The agent answered with an error. docs/error-codes.md lists the values of `code`."""

    def __init__(
        self,
        what: str,
        *,
        code: str,
        details: Optional[Dict[str, Any]] = None,
        where: Optional[str] = None,
        next: Optional[str] = None,
    ) -> None:
        super().__init__(what, where=where, next=next)
        self.code = code
        self.details = details or {}
        if code in ("refused", "lock_lost"):
            self.exit_code = Refused.exit_code


def has_code(error: object, *codes: str) -> bool:
    """Return True if `error` is an AgentError whose `code` is one of `codes`."""
    return isinstance(error, AgentError) and error.code in codes


class BadAnswer(HostFailed):
    """The host gave an invalid answer.

    The answer has other fields or types than the verb's answer, or names something that was not
    requested.
    """

    def __init__(self, what: str, *, where: Optional[str]) -> None:
        super().__init__(
            what, where=where, next="do not trust this host before you know why its answer is wrong"
        )


class RunFailed(TfdeployError):
    exit_code = 1


class SurvivorsLeft(TfdeployError):
    exit_code = 5


class Interrupted(TfdeployError):
    exit_code = 130


# {exit code: its meaning}
EXIT_CODES = {
    0: "success",
    1: "the run failed, or the verb failed on a host",
    2: "wrong usage or configuration, or no such run",
    3: "refused before anything was done",
    4: "a host could not be reached",
    5: "`stop` left processes alive",
    70: "a bug in tfdeploy",
    130: "interrupted",
}
_SEVERITY = (0, 1, 3, 4, 5)


def worst_exit_code(results: Iterable[object]) -> int:
    """Return one exit code for several results; 0 if all of them succeeded.

    A result is an error or an exit code. Any other object counts as success. Of several exit codes,
    130 takes precedence, then 2, 5, 4, 3 and 1.
    """
    errors = [each.exit_code if isinstance(each, TfdeployError) else each for each in results]
    codes = [code for code in errors if isinstance(code, int)]
    if 130 in codes:
        return 130
    if 2 in codes:
        return 2
    return max(codes, key=_SEVERITY.index, default=0)
