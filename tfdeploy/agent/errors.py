"""Define the error of a verb, and which names and paths are safe."""

from __future__ import annotations

from tfdeploy.agent.annotations import Mapping, Optional


class _Name:
    """Matches [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}, the whole text; by hand, because `re` would take
    longer to load than a session's start."""

    _first = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
    _more = _first | frozenset(".-")

    def match(self, text: str) -> bool:
        return 0 < len(text) <= 128 and text[0] in self._first and self._more.issuperset(text)


NAME = _Name()


def is_path_inside(path: object) -> bool:
    """True for a relative path that cannot leave its folder. Links on the way are not checked."""
    if not isinstance(path, str) or "\0" in path:
        return False
    return not any(name in ("", ".", "..") for name in path.split("/"))


class VerbError(Exception):
    """Becomes {"error": {"code", "what", "where", "advice", "details"}}. `advice`: the name of a
    line of model/advice.py, which the control side fills with the details."""

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
