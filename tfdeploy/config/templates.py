"""Builds the texts of the job file and the inventory that `tfdeploy init` writes.

The comments in these texts come from the reference. Writes no file itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from tfdeploy.config import reference
from tfdeploy.config.schema import Key

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./@-]*\Z", re.ASCII)
_NOT_PLAIN = ("yes", "no", "true", "false", "on", "off", "null")


def job_text(*, name: str, mode: str, command: Iterable[str]) -> str:
    """Return the text of a job file with these keys. All other keys are comments with defaults."""
    stated = {
        "name": f"name: {quoted(name)}",
        "mode": f"mode: {mode}",
        "command": f"command: [{', '.join(map(quoted, command))}]",
    }
    head = (
        "# What to train. Paths are relative to this file; `tfdeploy docs` prints the reference.\n"
    )
    return head + "".join(_block(key, stated) for key in reference.JOB)


def inventory_text(hosts: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of an inventory: the first host has the role ps, the others are workers.

    `hosts`: host name -> key -> value.
    """
    lines = "\n".join(
        f"  {name}: {{{', '.join(f'{key}: {quoted(text)}' for key, text in keys.items())}}}"
        for name, keys in hosts.items()
    )
    names = list(hosts)
    roles = f"roles:\n  ps: [{names[0]}]\n  worker: [{', '.join(names[1:] or names)}]"
    defaults = "\n".join(
        f"#  {key.example:<40}  # {key.text}"
        for key in reference.HOST
        if key.name not in ("address", "advertise")
    )
    return (
        "# Which hosts there are. `tfdeploy docs` prints the reference, `tfdeploy inventory` "
        "what was understood.\n\n"
        "# what all hosts have in common; left out: ~/.ssh/config and ssh's own defaults "
        f"count\n#defaults:\n{defaults}\n\n"
        "# name: settings. A range gpu[01-16] names many, {name} stands for the name: "
        '{address: "{name}.example.org"}\n'
        f"hosts:\n{lines}\n\n# which hosts hold the variables (ps) and which train (worker); a "
        f"host may do both\n{roles}\n"
    )


def quoted(word: str) -> str:
    """Return the word, in quotes if YAML would otherwise not read it as exactly this text."""
    return (
        word
        if _PLAIN.match(word) and word.lower() not in _NOT_PLAIN
        else json.dumps(word, ensure_ascii=False)
    )


def _block(key: Key, stated: Mapping[str, str]) -> str:
    default = f" (default: {key.default})" if key.default else ""
    commented = "\n".join("#" + line for line in key.example.splitlines())
    return f"\n# {key.text}{default}\n{stated.get(key.name, commented)}\n"
