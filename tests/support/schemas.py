"""Check a value against a JSON Schema of docs/json or docs/schemas. Only the keywords that these
schemas use are supported.

A key that is missing in the schema is a fault too, because the schemas document the complete JSON
output of tfdeploy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tfdeploy.cli.arguments.docs import TOPICS
from tfdeploy.cli.verb_table import VERBS
from tfdeploy.model.output.printed import schema_of

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
READ = {
    "$schema",
    "$ref",
    "$defs",
    "title",
    "description",
    "format",
    "default",
    "type",
    "anyOf",
    "enum",
    "properties",
} | {*("required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems")}
READ |= {*("pattern", "propertyNames", "minimum", "maximum", "uniqueItems")}
READ |= {*("minProperties", "maxProperties")}
# {(verb, argument): the schema of the verb with that argument}
WITH = {
    ("sync", "--dry-run"): "sync-dry-run",
    ("launch", "--dry-run"): "launch-dry-run",
    ("fetch", "--onto"): "fetch-onto",
    ("report", "--serve"): "report-serve",
    ("lab", "down"): "lab-down",
    **{("docs", topic): "docs-topic" for topic in TOPICS},
}


def find_faults(
    value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str = ""
) -> Iterator[str]:
    """Yield the faults of a value, such as `hosts[0].error: 3 is no string`."""
    unread = set(schema) - READ
    assert not unread, f"{unread} of a schema is not read here"
    if "$ref" in schema:
        yield from find_faults(value, defs[schema["$ref"].rpartition("/")[2]], defs, at)
    if "anyOf" in schema:
        tried = [list(find_faults(value, each, defs, at)) for each in schema["anyOf"]]
        yield from () if not all(tried) else min(tried, key=len)
    kinds = schema.get("type") or []
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{at}: {value!r} is no {' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{at}: {value!r} does not match {schema['pattern']}"
    if _is(value, "number") and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        yield f"{at}: {value!r} is too small or too large"
    if "array" in kinds and isinstance(value, list):
        yield from _of_array(value, schema, defs, at)
    if "object" in kinds and isinstance(value, dict):
        yield from _of_object(value, schema, defs, at)


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _of_array(
    value: list[Any], schema: dict[str, Any], defs: dict[str, Any], at: str
) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: {len(value)} values"
    if schema.get("uniqueItems") and any(value.count(each) > 1 for each in value):
        yield f"{at}: {value!r} has equal values"
    first = schema.get("prefixItems", [])
    for number, each in enumerate(value):
        expected = first[number] if number < len(first) else schema.get("items") or {}
        yield from find_faults(each, expected, defs, f"{at}[{number}]")


def _of_object(
    value: dict[str, Any], schema: dict[str, Any], defs: dict[str, Any], at: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    yield from (f"{at}.{key} is missing" for key in schema.get("required", ()) if key not in value)
    more = schema.get("additionalProperties", True)
    low, high = schema.get("minProperties", 0), schema.get("maxProperties", len(value))
    if not low <= len(value) <= high:
        yield f"{at}: {len(value)} keys"
    for key, each in value.items():
        yield from find_faults(key, schema.get("propertyNames", {}), defs, f"{at}.{key}")
        if key in known:
            yield from find_faults(each, known[key], defs, f"{at}.{key}")
        elif isinstance(more, dict):
            yield from find_faults(each, more, defs, f"{at}.{key}")
        elif known:
            yield f"{at}.{key} is not in the schema"


def find_schema_name(args: Sequence[str], value: Any) -> str:
    """Return the name of the schema for the output of `tfdeploy ARGS --json`."""
    if isinstance(value, dict) and set(value) == {"error"}:
        return "error"
    verb = next(word for word in args if word in VERBS)
    return next((name for (of, word), name in WITH.items() if of == verb and word in args), verb)


def find_printed_faults(args: Sequence[str], value: Any) -> list[str]:
    """Return the faults of `value`, the output of `tfdeploy ARGS --json`."""
    schema = schema_of(find_schema_name(args, value))
    return list(find_faults(value, schema, schema.get("$defs", {})))
