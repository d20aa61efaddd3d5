"""What to type next for many hosts, in few lines: commands that differ only in `--limit HOST` become one. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from tfdeploy.model.folding import fold_names

MOST = 5  # lines; the last one names the hosts of all further texts


def fold_nexts(nexts: Mapping[str, str | None]) -> list[str]:
    """`nexts`: host -> its text (None: it has none). Lines in order of appearance, each once; every host with a text is named."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for host, text in nexts.items():
        if text:
            hosts.setdefault(_around(text, host), []).append(host)
    groups = list(hosts.items())
    shown = groups if len(groups) <= MOST else groups[: MOST - 1]
    lines = [_filled(parts, names) for parts, names in shown]
    rest = [name for _, names in groups[len(shown) :] for name in names]
    return [*lines, f"and the like for {fold_names(rest)}"] if rest else lines


def _around(text: str, host: str) -> tuple[str, str]:
    """The text before and after the host's name behind `--limit`; (text, "") where the name is not there."""
    before, named, after = re.sub(rf"(--limit ){re.escape(host)}(?![\w.,\[-])", "\\1\0", text, count=1).partition("\0")
    return (before, named + after) if named else (text, "")


def _filled(parts: tuple[str, str], hosts: list[str]) -> str:
    before, after = parts
    return before + shlex.quote(fold_names(hosts)) + after[1:] if after else before
