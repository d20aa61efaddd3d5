"""Define VerbError, the error of a verb, and the rules for safe names and paths."""

from __future__ import annotations

from tfdeploy.agent.annotations import Mapping, Optional

# This module does not use `re`, because importing `re` would take longer than everything else at
# the start of a session.
_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_FURTHER = _FIRST | frozenset(".-")


def is_safe_name(value: object) -> bool:
    """Return whether the value is a name that is safe in a path:
    [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= 128
        and value[0] in _FIRST
        and _FURTHER.issuperset(value)
    )


def is_safe_relative_path(path: object) -> bool:
    """Return whether `path` is relative and, as text, does not lead out of its folder. Links inside
    the folder are not checked; they may lead out of it."""
    if not isinstance(path, str) or "\0" in path:
        return False
    return not any(name in ("", ".", "..") for name in path.split("/"))


class VerbError(Exception):
    """An error that a verb (a request to the agent) reports. The caller receives the answer
    {"error": {...}} with the keys "code", "what", "where", "advice" and "details". `advice`: the
    name of a text in model/answers/failures.py. The control machine fills the placeholders of this
    text with `details`."""

    def __init__(
        self,
        code: str,
        what: str,
        where: Optional[str] = None,
        advice: Optional[str] = None,
        details: Optional[Mapping[str, object]] = None,
    ) -> None:
        super().__init__(what)
        self.code, self.what, self.where, self.advice, self.details = (
            code,
            what,
            where,
            advice,
            details or {},
        )
