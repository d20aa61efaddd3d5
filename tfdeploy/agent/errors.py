"""The error of a verb, and which names are safe in a path."""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import Mapping, Optional

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")


class VerbError(Exception):
    """Becomes {"error": {"code", "what", "where", "next", "details"}}."""

    def __init__(
        self,
        code: str,
        what: str,
        where: Optional[str] = None,
        next: Optional[str] = None,
        details: Optional[Mapping[str, object]] = None,
    ) -> None:
        super().__init__(what)
        self.code, self.what, self.where, self.next, self.details = code, what, where, next, details or {}
