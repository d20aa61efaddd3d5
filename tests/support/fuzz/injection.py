"""List texts that a parser, shell or terminal may interpret, and quote them for a file."""

from __future__ import annotations

import json
from pathlib import Path

VALUES: tuple[str, ...] = tuple(json.loads(Path(__file__).with_name("injection.json").read_text()))
# A file of this name exists if one of the texts was executed.
CANARY = "TFDEPLOY-CANARY"
# The texts that can be arguments of a program, because they contain no NUL.
WORDS = tuple(value for value in VALUES if "\0" not in value)
# Each name is one component of a path. The last names are not UTF-8, so a YAML file cannot contain
# them.
FILE_NAMES: tuple[bytes, ...] = tuple(
    dict.fromkeys(
        name
        for name in (
            *(value.encode().replace(b"/", b"_") for value in WORDS),
            b"\xff",
            b"a\xed\xa0\x80",
            b"\x80\n\x1b[2J",
        )
        if name not in (b".", b"..") and len(name) <= 200
    )
)


def quoted(text: str) -> str:
    """Return the text as a double-quoted YAML scalar."""
    return (
        '"'
        + "".join(
            char if char.isascii() and char.isalnum() else f"\\U{ord(char):08x}" for char in text
        )
        + '"'
    )


def braced(text: str) -> str:
    """Return the text with doubled braces, so that `command` and `env` use it literally."""
    return text.replace("{", "{{").replace("}", "}}")
