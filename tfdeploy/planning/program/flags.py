"""Which of the cluster flags a program defines, in its own spelling, read from its syntax tree.

Knows argparse (and optparse), absl and tf.app.flags, click. A program that reads sys.argv by hand defines nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tfdeploy.planning.program import flag_types
from tfdeploy.planning.program.flag_types import FlagType, text
from tfdeploy.planning.program.source import Program, main_block

CLASSIC = ("ps_hosts", "worker_hosts", "job_name", "task_index")
NAMES = (*CLASSIC, "issync")
# Other names of these flags; they count where --job_name is defined and the usual name is not.
SYNONYMS = {"task_id": "task_index", "task": "task_index", "sync_replicas": "issync"}

# value: --flag=value. switch: --flag when it is on. negated: --flag when it is off. pair: --flag or its `off` word.
# words: --flag a b c. truthy: argparse's type=bool, for which every text but the empty one is true.
Form = Literal["value", "switch", "negated", "pair", "words", "truthy"]


@dataclass(frozen=True)
class Flag:
    """One flag as the program defines it, at `where` ("train.py:12")."""

    name: str
    spelling: str
    form: Form = "value"
    off: str = ""
    value_type: FlagType = field(default_factory=FlagType)
    where: str = ""

    @property
    def plain_name(self) -> str:
        """As one of NAMES or SYNONYMS: "task_id" of --task-id."""
        return self.spelling.lstrip("-").replace("-", "_")

    def arguments(self, value: str) -> tuple[str, ...]:
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
    """The flags that the program and the modules it imports define, in the order of NAMES: of each the first definition."""
    found: dict[str, Flag] = {}
    for flag in definitions(program):
        found.setdefault(flag.name, flag)
    return tuple(found[name] for name in NAMES if name in found)


def definitions(program: Program) -> Iterator[Flag]:
    """Every definition of one of NAMES, or of the first synonym that stands for it."""
    found = [
        replace(flag, where=f"{path}:{call.lineno}")
        for path, call in _calls(program)
        if (flag := _flag(call)) and _is_cluster_flag(flag)
    ]
    names = {flag.name: flag.plain_name for flag in reversed(found)}
    names |= {flag.name: flag.name for flag in found if flag.plain_name == flag.name}
    yield from (
        flag for flag in found if flag.plain_name == names[flag.name] and (flag.plain_name == flag.name or "job_name" in names)
    )


def _is_cluster_flag(flag: Flag) -> bool:
    return (
        flag.plain_name == flag.name
        or flag.value_type.kind == "int"
        or (flag.name == "issync" and flag.value_type.kind != "text")
    )


def abbreviated(program: Program, name: str) -> Iterator[tuple[str, str]]:
    """(spelling, where) of each flag that argparse or optparse takes --name for, where no flag is called so itself."""
    calls = list(_calls(program))
    if any(keyword.arg == "allow_abbrev" for _, call in calls for keyword in call.keywords):
        return
    for path, call in calls:
        for spelling in _strings(call) if _function_name(call) in ("add_argument", "add_option") else ():
            if spelling.startswith(f"--{name}"):
                yield spelling, f"{path}:{call.lineno}"


def _calls(program: Program) -> Iterator[tuple[str, ast.Call]]:
    for position, (path, tree) in enumerate(zip(program.paths, program.trees, strict=True)):
        for statement in tree.body:
            if not (position and main_block(statement)):
                yield from ((path, node) for node in ast.walk(statement) if isinstance(node, ast.Call))


def _flag(call: ast.Call) -> Flag | None:
    name = _function_name(call)
    if name in ("add_argument", "add_option"):
        return _from_argparse(call)
    if name.startswith("DEFINE_"):
        return _from_absl(call)
    if name == "option":
        return _from_click(call)
    return None


def _function_name(call: ast.Call) -> str:
    return flag_types.last_name(call.func)


def _given(call: ast.Call) -> dict[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _from_argparse(call: ast.Call) -> Flag | None:
    for spelling in _strings(call):
        name = _name(spelling)
        if spelling.startswith("-") and name:
            return _argparse_form(call, name, spelling)
    return None


def _argparse_form(call: ast.Call, name: str, spelling: str) -> Flag:
    given = _given(call)
    action, taken = given.get("action"), flag_types.of_argparse(given)
    if text(action) in ("store_true", "store_false"):
        return Flag(name, spelling, "switch" if text(action) == "store_true" else "negated", value_type=taken)
    if flag_types.last_name(action) == "BooleanOptionalAction":
        return Flag(name, spelling, "pair", f"--no-{spelling.lstrip('-')}", taken)
    if text(given.get("nargs")) in ("+", "*"):
        return Flag(name, spelling, "words", value_type=taken)
    return Flag(name, spelling, "truthy" if name == "issync" and taken.kind == "bool" else "value", value_type=taken)


def _from_absl(call: ast.Call) -> Flag | None:
    given = _given(call)
    called = next(iter([*_strings(call)[:1], text(given.get("name"))]), None) or ""
    name = _name(called)
    return Flag(name, f"--{called}", value_type=flag_types.of_absl(call, given)) if name else None


def _from_click(call: ast.Call) -> Flag | None:
    given = _given(call)
    for word in _strings(call):
        spelling, _, off = word.partition("/")
        name = _name(spelling.strip())
        if not spelling.startswith("-") or not name:
            continue
        if off:
            return Flag(name, spelling.strip(), "pair", off.strip(), FlagType("nothing"))
        return Flag(
            name,
            spelling,
            "switch" if flag_types.is_true(given.get("is_flag")) else "value",
            value_type=flag_types.of_click(given),
        )
    return None


def _name(spelling: str) -> str:
    """The one of NAMES that a flag of this spelling is, or stands for; "" for any other."""
    name = spelling.lstrip("-").replace("-", "_")
    return name if name in NAMES else SYNONYMS.get(name, "")


def _strings(call: ast.Call) -> list[str]:
    return [word for argument in call.args if (word := text(argument)) is not None]
