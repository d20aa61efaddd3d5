"""Defines a key of a file: its name, reader and description.

`reference.py` lists the keys; `read_keys` reads a mapping according to such a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfdeploy.config.node import Node, nearest


@dataclass(frozen=True)
class Key:
    """One key of a file. It has either a value, which `read` reads, or `keys` below it.

    `field`: the name of the field that gets the value; "" means the name of the key.
    """

    name: str
    text: str  # description for users, one line
    example: str  # the key with a value, as a file may contain it
    read: Callable[[Node], Any] | None = None
    default: str = ""
    field: str = ""
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Given:
    """A value from the file, with the node it was read from."""

    value: Any
    node: Node


def read_keys(node: Node, keys: tuple[Key, ...]) -> dict[str, Given]:
    """Return field name -> value and location, for the keys of this mapping that have a value.

    Raises ConfigError for an unknown key or a wrong value.
    """
    known = {key.name: key for key in keys}
    given: dict[str, Given] = {}
    for name, value in node.mapping().items():
        if name not in known:
            shown = name if len(name) <= 60 else name[:60] + "..."
            raise value.error(f"unknown key {shown!r}", nearest(name, known, "the keys here are"))
        key = known[name]
        if value.kind == "nothing":
            continue
        if key.read is None:
            given |= read_keys(value, key.keys)
        else:
            given[key.field or name] = Given(key.read(value), value)
    return given


def read_values(node: Node, keys: tuple[Key, ...]) -> dict[str, Any]:
    """Return field name -> value, for the keys of this mapping that have a value.

    Raises ConfigError for an unknown key or a wrong value.
    """
    return {field: given.value for field, given in read_keys(node, keys).items()}
