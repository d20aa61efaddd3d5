"""Define VerbError, the error of a verb, and the rules for safe names and paths."""

from __future__ import annotations

from tfdeploy.agent.annotations import Mapping, Optional


class _NamePattern:
    """Matches a whole text against the pattern [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}. It does not use
    the module `re`, because loading `re` takes longer than the rest of the start of a session."""

    _first = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
    _more = _first | frozenset(".-")

    def match(self, text: str) -> bool:
        return 0 < len(text) <= 128 and text[0] in self._first and self._more.issuperset(text)


NAME = _NamePattern()


def is_path_inside(path: object) -> bool:
    """Return whether `path` is a relative path that does not lead out of its folder. Links in the
    folder are not checked."""
    if not isinstance(path, str) or "\0" in path:
        return False
    return not any(name in ("", ".", "..") for name in path.split("/"))


class VerbError(Exception):
    """The error of a verb (a request to the agent). The caller receives it as {"error": {"code",
    "what", "where", "advice", "details"}}. `advice`: the name of a text in model/advice.py. The
    control machine completes that text with `details`."""

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
