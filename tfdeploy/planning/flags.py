"""Which of the cluster flags a program defines, in its own spelling, read from its syntax tree.

Knows argparse (and optparse), absl and tf.app.flags, click. A program that reads sys.argv by hand defines nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tfdeploy.planning.program import Program, main_block

CLASSIC = ("ps_hosts", "worker_hosts", "job_name", "task_index")
NAMES = (*CLASSIC, "issync")

# value: --flag=value. switch: --flag when it is on. negated: --flag when it is off. pair: --flag or its `off` word.
# words: --flag a b c. truthy: argparse's type=bool, for which every text but the empty one is true.
Form = Literal["value", "switch", "negated", "pair", "words", "truthy"]


@dataclass(frozen=True)
class Flag:
    """One flag as the program defines it."""

    name: str
    spelling: str
    form: Form = "value"
    off: str = ""

    def words(self, value: str) -> tuple[str, ...]:
        """The words of the command line that give it this value; for issync the value is "1" or "0"."""
        on = value == "1"
        if self.form in ("switch", "negated"):
            return (self.spelling,) if on == (self.form == "switch") else ()
        if self.form == "pair":
            return (self.spelling if on else self.off,)
        if self.form == "words":
            return (self.spelling, *value.split(","))
        return (f"{self.spelling}={'' if self.form == 'truthy' and not on else value}",)


def classic(names: tuple[str, ...] = CLASSIC) -> tuple[Flag, ...]:
    """The flags of the between-graph tutorials, whatever the program defines."""
    return tuple(Flag(name, f"--{name}") for name in names)


def defined(program: Program) -> tuple[Flag, ...]:
    """The flags that the program and the modules it imports define, in the order of NAMES."""
    found: dict[str, Flag] = {}
    for position, tree in enumerate(program.trees):
        for call in _calls(tree, imported=position > 0):
            flag = _flag(call)
            if flag is not None:
                found.setdefault(flag.name, flag)
    return tuple(found[name] for name in NAMES if name in found)


def _calls(tree: ast.Module, *, imported: bool) -> Iterator[ast.Call]:
    for statement in tree.body:
        if not (imported and main_block(statement)):
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _flag(call: ast.Call) -> Flag | None:
    name = _called(call)
    if name in ("add_argument", "add_option"):
        return _from_argparse(call)
    if name.startswith("DEFINE_"):
        return _from_absl(call)
    if name == "option":
        return _from_click(call)
    return None


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _from_argparse(call: ast.Call) -> Flag | None:
    for spelling in _strings(call):
        name = spelling.lstrip("-").replace("-", "_")
        if spelling.startswith("-") and name in NAMES:
            return _argparse_form(call, name, spelling)
    return None


def _argparse_form(call: ast.Call, name: str, spelling: str) -> Flag:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    action = given.get("action")
    if _text(action) in ("store_true", "store_false"):
        return Flag(name, spelling, "switch" if _text(action) == "store_true" else "negated")
    if _last_name(action) == "BooleanOptionalAction":
        return Flag(name, spelling, "pair", f"--no-{spelling.lstrip('-')}")
    if _text(given.get("nargs")) in ("+", "*"):
        return Flag(name, spelling, "words")
    return Flag(name, spelling, "truthy" if name == "issync" and _last_name(given.get("type")) == "bool" else "value")


def _from_absl(call: ast.Call) -> Flag | None:
    by_keyword = [_text(keyword.value) for keyword in call.keywords if keyword.arg == "name"]
    name = next(iter([*_strings(call)[:1], *by_keyword]), None)
    return Flag(name, f"--{name}") if name in NAMES else None


def _from_click(call: ast.Call) -> Flag | None:
    for text in _strings(call):
        spelling, _, off = text.partition("/")
        name = spelling.strip().lstrip("-").replace("-", "_")
        if not spelling.startswith("-") or name not in NAMES:
            continue
        if off:
            return Flag(name, spelling.strip(), "pair", off.strip())
        is_flag = any(keyword.arg == "is_flag" and _true(keyword.value) for keyword in call.keywords)
        return Flag(name, spelling, "switch" if is_flag else "value")
    return None


def _strings(call: ast.Call) -> list[str]:
    return [text for argument in call.args if (text := _text(argument)) is not None]


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _last_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
