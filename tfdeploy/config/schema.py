"""Defines a key of a file: its name, reader and description.

`reference.py` lists the keys. From such a list, `read_keys` reads a mapping, and `mapping_schema`
makes a JSON Schema. A reader is a function that takes the node of a value, checks it and returns
the value. It is decorated with `accepts`, which states the values that the reader takes, as a JSON
Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tfdeploy.config.node import ANY_KEY, Node, nearest_hint
from tfdeploy.errors import ConfigError
from tfdeploy.model.modes import ROLES

Schema = dict[str, Any]  # a JSON Schema (draft 7) in which `type` is always a list
R = TypeVar("R", bound=Callable[[Node], Any])
_SCHEMAS: dict[Callable[[Node], Any], Schema] = {}


def accepts(*types: str, **more: Any) -> Callable[[R], R]:
    """Return a decorator that stores, as a JSON Schema, which values a reader accepts.

    `types`: JSON types. `more`: the other keywords of the schema. The reader also accepts numbers
    in quotes, and numbers in place of texts, which the schema does not allow. In turn, the schema
    may allow values that the reader refuses, because only the reader checks rules about several
    values.
    """

    def store_schema(read: R) -> R:
        _SCHEMAS[read] = {"type": [*types], **more}
        return read

    return store_schema


def schema_of(read: Callable[[Node], Any]) -> Schema:
    """Return the JSON Schema of the values that the function `read` takes.

    The decorator `accepts` of `read` has stored this schema.
    """
    return _SCHEMAS[read]


def join_alternative_patterns(*expressions: re.Pattern[str]) -> str:
    """Return a `pattern` for a JSON Schema. It matches a text if any of the expressions matches it.

    Each expression must end in `\\Z`.
    """
    return "|".join("^" + each.pattern.replace(r"\Z", "$") for each in expressions)


@dataclass(frozen=True)
class Key:
    """One key of a file. The key has either a value, which `read` reads, or further `keys` below
    it.

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
class LocatedValue:
    """A value from the file, with the node it was read from."""

    value: Any
    node: Node


def read_keys(node: Node, keys: tuple[Key, ...]) -> dict[str, LocatedValue]:
    """Return {field name: value and location} for the keys of this mapping that have a value.

    Raises ConfigError for an unknown key or a wrong value.
    """
    known = {key.name: key for key in keys}
    given: dict[str, LocatedValue] = {}
    for name, value in node.mapping().items():
        if name not in known:
            shown = name if len(name) <= 60 else f"{name[:60]}..."
            hint = nearest_hint(name, known, "the keys here are")
            if name in ROLES and "roles" in known:
                hint = "indent it below `roles:`"
            raise value.error(f"unknown key {shown!r}", hint)
        if value.kind != "nothing":
            given |= _read_key(value, known[name])
    return given


def _read_key(node: Node, key: Key) -> dict[str, LocatedValue]:
    try:
        if key.read is None:
            return read_keys(node, key.keys)
        return {key.field or key.name: LocatedValue(key.read(node), node)}
    except ConfigError as error:
        if error.next == ANY_KEY:
            first, *more = key.example.splitlines()
            example = f"{first} {{{more[0].strip()}}}" if more else first
            if node.key.startswith("ansible_") or (node.key and node.parent is None):
                example = example.replace(f"{key.name}: ", f"{node.key}=")
            error.next = f"write it as in `{example}`"
        raise


def read_values(node: Node, keys: tuple[Key, ...]) -> dict[str, Any]:
    """Return {field name: value} for the keys of this mapping that have a value.

    Raises ConfigError for an unknown key or a wrong value.
    """
    return {field: given.value for field, given in read_keys(node, keys).items()}


def mapping_schema(keys: tuple[Key, ...]) -> Schema:
    """Return the JSON Schema of a mapping with these keys. The value of a key may be left empty."""
    return {
        "type": ["object"],
        "properties": {key.name: allow_empty(_key_schema(key)) for key in keys},
        "additionalProperties": False,
    }


def allow_empty(schema: Schema) -> Schema:
    """Return the schema of a value that may also be left empty."""
    empty: Schema = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*schema["type"], "null"], **empty}


def _key_schema(key: Key) -> Schema:
    schema = mapping_schema(key.keys) if key.read is None else schema_of(key.read)
    default = f"\nDefault: {key.default}" if key.default else ""
    described = {"description": f"{key.text}\nExample: {key.example}{default}", **schema}
    pattern = "|".join(schema.get("enum", ())) or schema.get("pattern", "-")
    # The schema gets a `default` only if the key's default is a value. Some defaults only describe
    # the value in words, and "none" means that there is no value.
    is_value = key.default not in ("", "none") and " " not in key.default
    if is_value and re.search(pattern, key.default):
        described["default"] = key.default
    return described
