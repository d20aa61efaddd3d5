"""Texts that a parser, shell or terminal may interpret, and how to quote them in a file."""

from __future__ import annotations

import json
from pathlib import Path

VALUES: tuple[str, ...] = tuple(json.loads(Path(__file__).with_name("injection.json").read_text()))
CANARY = "TFDEPLOY-CANARY"  # a file of this name was made by one of them
# what a program can get as an argument
WORDS = tuple(value for value in VALUES if "\0" not in value)
# one part of a path; the last ones are no UTF-8, which no YAML file can hold
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
    """Return the text in YAML's double quotes."""
    return (
        '"'
        + "".join(
            char if char.isascii() and char.isalnum() else f"\\U{ord(char):08x}" for char in text
        )
        + '"'
    )


def braced(text: str) -> str:
    """Return the text so that `command` and `env` take it literally."""
    return text.replace("{", "{{").replace("}", "}}")
