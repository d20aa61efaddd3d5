"""What a key is: name, reader, one line about it. `reference.py` lists the keys; `read_keys` reads a mapping by such a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfdeploy.config.node import Node, nearest
from tfdeploy.errors import ConfigError


@dataclass(frozen=True)
class Key:
    """One key of a file. `field`: its name in the value that is read. It has either `read` or `keys`."""

    name: str
    text: str  # one line for people
    example: str  # as it stands in a file
    read: Callable[[Node], Any] | None = None
    default: str = ""
    field: str = ""
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Given:
    """A value that stands in the file, and where."""

    value: Any
    node: Node


def read_keys(node: Node, keys: tuple[Key, ...]) -> dict[str, Given]:
    """The mapping's values by field name. Raises ConfigError: an unknown key, a wrong value.

    A key that is there without a value counts as left out.
    """
    known = {key.name: key for key in keys}
    found: dict[str, Given] = {}
    for name, value in node.mapping().items():
        key = known.get(name)
        if key is None:
            raise unknown(name, value, known)
        if value.kind == "nothing":
            continue
        if key.keys:
            found.update(read_keys(value, key.keys))
        elif key.read is not None:
            found[key.field or key.name] = Given(key.read(value), value)
    return found


def unknown(name: str, value: Node, known: dict[str, Key]) -> ConfigError:
    shown = name if len(name) <= 60 else name[:60] + "..."
    meant = {"cmd": "command"}.get(name, name)  # by letters, `cwd` would be nearer
    return value.error(f"unknown key {shown!r}", nearest(meant, known, "the keys here are"))
