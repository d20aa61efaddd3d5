"""Define the results of a preflight: checks of each host, and the links between hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tfdeploy.model.output.rows import CheckedHostRow, CheckRow, LinkRow
from tfdeploy.model.row_values import copy_fields

Level = Literal["error", "warning"]


class Check(NamedTuple):
    """One check of one host. `level` and `fix` are meaningful only if `ok` is false. `fix`: a
    command to type, or what to write."""

    check: str
    ok: bool = True
    level: Level = "error"
    detail: str = ""
    fix: str | None = None

    @property
    def is_error(self) -> bool:
        return not self.ok and self.level == "error"


@dataclass(frozen=True)
class LinkResult:
    """A link from a host to a port of another host. If `ok` is true and there is a `why`, the link
    works but is slow."""

    from_host: str
    to_host: str
    port: int
    ok: bool = True
    why: str | None = None
    fix: str | None = None
    ms: float | None = None
    mbit_s: float | None = None


class PreflightResult(NamedTuple):
    """All results of a preflight. `unreached`: hosts without a session."""

    hosts: Mapping[str, tuple[Check, ...]]
    links: tuple[LinkResult, ...] = ()
    unreached: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        return all(each.ok for each in self.links) and not any(
            each.is_error for checks in self.hosts.values() for each in checks
        )

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing is wrong, 1 if something is, 4 if a host was not reached."""
        return 4 if self.unreached else 0 if self.ok else 1


def host_rows(checked: PreflightResult) -> list[CheckedHostRow]:
    """Return the rows of `check --json`. A host is `ok` even if it has warnings."""
    return [
        {
            "host": host,
            "ok": not any(each.is_error for each in host_checks),
            "checks": [copy_fields(CheckRow, each) for each in host_checks],
        }
        for host, host_checks in checked.hosts.items()
    ]


def link_rows(checked: PreflightResult) -> list[LinkRow]:
    return [
        copy_fields(LinkRow, link, **{"from": link.from_host, "to": link.to_host})
        for link in checked.links
    ]
