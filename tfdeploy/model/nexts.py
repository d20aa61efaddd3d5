"""What to type next for many hosts, in few lines: commands that differ only in the host's name become one. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from tfdeploy.model.folding import fold_names

_NAME = "\0"  # stands for the host's name
MOST = 5  # lines; the last one names the hosts of all further texts


def fold_nexts(nexts: Mapping[str, str | None]) -> list[str]:
    """`nexts`: host -> its text (None: it has none). Lines in order of appearance, each once; every host with a text is named."""
    hosts: dict[str, list[str]] = {}
    for host, text in nexts.items():
        if text:
            hosts.setdefault(_without_name(text, host), []).append(host)
    groups = list(hosts.items())
    shown = groups if len(groups) <= MOST else groups[: MOST - 1]
    lines = [text.replace(_NAME, shlex.quote(fold_names(names))) for text, names in shown]
    rest = [name for _, names in groups[len(shown) :] for name in names]
    return [*lines, f"and the like for {fold_names(rest)}"] if rest else lines


def _without_name(text: str, host: str) -> str:
    """The text with _NAME in place of the host's name behind `--limit` and `--exclude`."""
    text = text.replace(_NAME, "")
    return re.sub(rf"(--(?:limit|exclude) ){re.escape(host)}(?![\w.,\[-])", rf"\g<1>{_NAME}", text)
