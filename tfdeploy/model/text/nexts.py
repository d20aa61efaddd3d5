"""Say what to type next for many hosts in few lines: commands that differ only in the host's name
become one. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from tfdeploy.model.text.folding import fold_names

_NAME = "\0"  # stands for the host's name
_BOUND = re.compile(r"(--(?:limit|exclude) )([A-Za-z0-9_][A-Za-z0-9_.-]*)(?![\w.,\[-])")
MOST = 5  # lines; the last one names the hosts of all further texts


def fold_nexts(nexts: Mapping[str, str | None]) -> list[str]:
    """Return lines in order of appearance, each once; every host with a text is named. `nexts`:
    host -> its text (None: none)."""
    hosts: dict[str, list[str]] = {}
    for host, text in nexts.items():
        if text:
            hosts.setdefault(without_name(text, host), []).append(host)
    groups = list(hosts.items())
    shown = groups if len(groups) <= MOST else groups[: MOST - 1]
    lines = [with_names(text, names) for text, names in shown]
    rest = [name for _, names in groups[len(shown) :] for name in names]
    return [*lines, f"and the like for {fold_names(rest)}"] if rest else lines


def without_name(text: str, host: str, mark: str = _NAME) -> str:
    """Return the text with a mark in place of the host's name after `--limit` and `--exclude`."""
    return _BOUND.sub(
        lambda found: found[1] + mark if found[2] == host else found[0], text.replace(mark, "")
    )


def with_names(text: str, hosts: Iterable[str], mark: str = _NAME) -> str:
    """Return the text of `without_name` with the names of hosts, quoted for a shell."""
    return text.replace(mark, shlex.quote(fold_names(hosts)))


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint what to write instead of `word`: the nearest known word, or `otherwise`."""
    import difflib  # a hint is rare

    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]}?" if near else otherwise


def on_host(host: str, *words: str) -> str:
    """Return the line that runs the words on a host; a single word is a line for its shell. Words
    that come from hosts are safe in it."""
    return shlex.join(("tfdeploy", "exec", "--limit", host, "--", *words))


def install_on(host: str, package: str, user: str) -> str:
    """Return the line that installs a package of the system on a host, with whichever of the two
    programs it has."""
    sudo = "" if user == "root" else "sudo "
    return on_host(host, f"{sudo}apt-get install -y {package} || {sudo}dnf install -y {package}")
