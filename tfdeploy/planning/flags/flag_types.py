"""The type of a flag's value, as far as its definition says: kind, choices, how many words.

Reads one call of argparse, optparse, absl or click. A type that is not literal (a function) takes every value.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tfdeploy.planning.source.expressions import is_true, last_name, text

Kind = Literal["text", "int", "float", "bool", "nothing"]

_TYPES: dict[str, Kind] = {
    "int": "int",
    "integer": "int",
    "intrange": "int",
    "long": "int",
    "float": "float",
    "bool": "bool",
    "boolean": "bool",
}
_TEXTS = ("str", "unicode", "string")
_NO_VALUE = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
_EXPECTED = {"int": "a whole number", "float": "a number", "bool": "yes or no", "nothing": "no value"}


@dataclass(frozen=True)
class FlagType:
    """No `choices`: any value of the kind. `count`: how many words the flag takes; 1 is also "one or more"."""

    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    count: int = 1
    default: str = ""  # where it is a text
    parser: ast.expr | None = field(default=None, compare=False, repr=False)  # a function, or a name that is registered for one

    def refusal(self, value: str) -> str | None:
        """What it takes instead of this value, in words; None where it takes it."""
        if self.count > 1:
            return f"{self.count} words"
        if self.kind in ("bool", "nothing") or (self.kind != "text" and not _number(value, self.kind)):
            return _EXPECTED[self.kind]
        return f"one of {', '.join(self.choices)}" if self.choices and value not in self.choices else None


def of_argparse(given: Mapping[str | None, ast.expr]) -> FlagType:
    """Of add_argument's or add_option's keywords."""
    if text(given.get("action")) in _NO_VALUE or last_name(given.get("action")) == "BooleanOptionalAction":
        return FlagType("nothing")
    kind = _kind(given.get("type"))
    own = kind == "text" or text(given.get("type")) is not None
    parser = given.get("type") if own and last_name(given.get("type")) not in _TEXTS else None
    return FlagType(kind, _listed(given.get("choices")), _count(given), _default(given), parser)


def of_absl(call: ast.Call, given: Mapping[str | None, ast.expr]) -> FlagType:
    """Of DEFINE_integer("name", default, ...) and its kin; the kind is in the function's name."""
    kind = _TYPES.get(last_name(call.func).rpartition("_")[2], "text")
    chosen = given.get("enum_values") or (call.args[2] if len(call.args) > 2 else None)
    choices = _listed(chosen) if last_name(call.func) == "DEFINE_enum" and "case_sensitive" not in given else ()
    return FlagType(kind, choices, default=text(call.args[1]) or "" if len(call.args) > 1 else _default(given))


def of_click(given: Mapping[str | None, ast.expr]) -> FlagType:
    if any(is_true(given.get(name)) for name in ("is_flag", "count")):
        return FlagType("nothing")
    kind = given.get("type")
    if isinstance(kind, ast.Call) and last_name(kind.func) == "Choice":
        choices = _listed(kind.args[0]) if kind.args and not kind.keywords else ()
        return FlagType("text", choices, _count(given), _default(given))
    return FlagType(_kind(kind.func if isinstance(kind, ast.Call) else kind), (), _count(given), _default(given))


def _kind(node: ast.expr | None) -> Kind:
    return _TYPES.get((text(node) or last_name(node)).lower(), "text")


def _number(value: str, kind: Kind) -> bool:
    try:
        return (int if kind == "int" else float)(value) is not None
    except ValueError:
        return False


def _listed(node: ast.expr | None) -> tuple[str, ...]:
    """The texts of a literal list; () where it is none, or not made of constants alone."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return ()
    constants = [each.value for each in node.elts if isinstance(each, ast.Constant)]
    return tuple(map(str, constants)) if len(constants) == len(node.elts) else ()


def _count(given: Mapping[str | None, ast.expr]) -> int:
    node = given.get("nargs")
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 1


def _default(given: Mapping[str | None, ast.expr]) -> str:
    return text(given.get("default") or given.get("default_value")) or ""
