"""Reads from a program's syntax tree which flags the program defines.

The module understands argparse, optparse, absl, tf.app.flags and click. The module `flags` then
selects the flags that describe the cluster. A flag whose `type` is a function is assumed to accept
every value.
"""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from tfdeploy.planning.source.entry_point import Command, program_index
from tfdeploy.planning.source.expressions import (
    argument,
    elements,
    is_true,
    last_name,
    literal_text,
)
from tfdeploy.planning.source.parsed_file import enclosing_nodes, place_of, subtree
from tfdeploy.planning.source.source import Program, is_main_block
from tfdeploy.text import placeholders

# How a flag is written on the command line:
# - value: --flag=value
# - switch: --flag if it is on
# - negated: --flag if it is off
# - pair: --flag if it is on, the `off` spelling if it is off
# - list: --flag a b c
# - truthy: --flag=value, and every value except "" counts as true (argparse's type=bool)
# - position: the value alone, without a flag
Form = Literal["value", "switch", "negated", "pair", "list", "truthy", "position"]
Kind = Literal["text", "int", "float", "bool", "nothing"]

# The value of each of these flags is a list of addresses, separated by commas.
ADDRESSES = ("ps_hosts", "worker_hosts", "chief_hosts")
_KINDS: dict[str, Kind] = {
    "int": "int",
    "integer": "int",
    "intrange": "int",
    "long": "int",
    "float": "float",
    "bool": "bool",
    "boolean": "bool",
}
_TEXTS = ("str", "unicode", "string")
# {argparse action whose flag takes no value: how the flag is written on the command line}
_ACTIONS: dict[str | None, Form] = {
    "store_true": "switch",
    "store_false": "negated",
    **dict.fromkeys(("store_const", "append_const", "count", "help", "version"), "value"),
}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "yes or no",
    "nothing": "no value",
}
_LISTS = {"DEFINE_list": ",", "DEFINE_multi_string": "multi", "DEFINE_spaceseplist": " "}


@dataclass(frozen=True)
class Flag:
    """One flag as the program defines it, at `where` ("train.py:12").

    `name`: what the flag tells the program about the cluster, such as "job_name"; "" if that is not
    known.
    """

    name: str
    spelling: str
    form: Form = "value"
    off: str = ""
    kind: Kind = "text"  # type of the flag's value
    choices: tuple[str, ...] = ()  # allowed values; (): any value of this type
    count: int = 1  # number of words in the value; 1 also stands for "one or more"
    default: str = ""  # the default if it is a string literal, else ""
    # The function that converts the value, or the name under which this function is registered.
    parser: ast.expr | None = field(default=None, compare=False, repr=False)
    where: str = ""
    dest: str = ""  # attribute of the parsed arguments that holds the value
    spellings: tuple[str, ...] = ()
    library: str = ""  # the library that reads the flag: "absl", "argparse" or "click"
    help: str = ""
    empty: bool = False  # True if the default is None or ""
    is_on: bool = False  # True if the default is True or 1
    # The flag's value, with placeholders. If it is "", the value is what `name` stands for, such as
    # the index of the task.
    template: str = ""
    # The text between two addresses; "" means a comma. There are two special values. "json": the
    # value is a JSON list. "multi": the flag is repeated for each address.
    separator: str = ""
    # If `name` is "issync": the flag's values for asynchronous and synchronous training.
    sync_values: tuple[str, str] = ("0", "1")
    # Where the program uses the flag in a way that shows its meaning, such as "train.py:30".
    because: str = ""
    # For a positional argument: its index in sys.argv, which is 1 or more. For others: 0.
    position: int = 0
    # The call that defines the flag.
    call: ast.Call | None = field(default=None, compare=False, repr=False)

    @property
    def plain_name(self) -> str:
        """Return the flag without leading dashes, and with underscores: "task_id" for --task-id."""
        return plain_name(self.spelling)

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the flag's value tells the program, such as ("job_name", "task_index")."""
        return tuple(placeholders.placeholder_names(self.template)) or (self.name,)

    def value_for_task(self, placeholder_values: Mapping[str, str]) -> str:
        """Return the flag's value for a task. `placeholder_values`: {placeholder: value}."""
        if self.name == "issync":
            return self.sync_values[placeholder_values["issync"] == "1"]
        if self.template:
            return placeholders.fill_placeholders(self.template, placeholder_values)
        value = placeholder_values[self.name]
        if self.name not in ADDRESSES or self.separator in ("", "multi"):
            return value
        if self.separator == "json":
            return json.dumps(value.split(","))
        return value.replace(",", self.separator)

    def arguments(self, placeholder_values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words of the command line that set the flag to its value for a task."""
        value = self.value_for_task(placeholder_values)
        if self.form in ("switch", "negated"):
            return (self.spelling,) if (value == "1") == (self.form == "switch") else ()
        if self.form == "pair":
            return (self.spelling if value == "1" else self.off,)
        if self.form == "list":
            return (self.spelling, *value.split(","))
        if self.form == "position":
            return (value,)
        if self.separator == "multi":
            return tuple(f"{self.spelling}={each}" for each in value.split(","))
        return (f"{self.spelling}={'' if self.form == 'truthy' and value == '0' else value}",)

    def why_refused(self, value: str) -> str | None:
        """Return None if the flag accepts this value, else a text that says what it accepts."""
        if self.count > 1:
            return f"{self.count} words"
        if self.kind != "text" and not _is_number(value, self.kind):
            return _EXPECTED[self.kind]
        allowed = self.choices or (value,)
        return None if value in allowed else f"one of {', '.join(allowed)}"


Flags = tuple[Flag, ...]


def plain_name(spelling: str) -> str:
    """Return the flag without leading dashes and with underscores: "task_id" for "--task-id"."""
    return spelling.lstrip("-").replace("-", "_")


def flags_in_command(command: Command) -> dict[str, str]:
    """Return {name: value} for each flag in the command. The names have no leading dashes.

    The value is the text after `=`. Without `=`, it is the next word, or "" if there is none.
    """
    values: dict[str, str] = {}
    for word, following in zip(command, (*command, "")[1:], strict=True):
        name, equals, value = word.partition("=")
        if word.startswith("-") and name.strip("-"):
            values[name.lstrip("-")] = value if equals else following
    return values


def is_in_command(flag: Flag, command: Command) -> bool:
    """Return whether the command contains the flag in one of its spellings, written in full."""
    given = flags_in_command(command)
    return any(each.lstrip("-") in given for each in (flag.spelling, *flag.spellings, flag.off))


def positional_words(command: Command, program: Program) -> tuple[list[str], bool]:
    """Return (the positional arguments of the command, whether this list is certain).

    It is not certain if, for example, the command contains a flag that takes a list.
    """
    flags = {each: flag for flag in reversed(defined_flags(program)) for each in flag.spellings}
    positional: list[str] = []
    is_certain = True
    words = iter(command[(program_index(command) or 0) + 1 :])
    for word in words:
        if not word.startswith("-"):
            positional.append(word)
            continue
        name, has_value, _ = word.partition("=")
        flag = flags.get(name)
        is_certain &= flag is not None and flag.form != "list" and flag.count == 1
        takes_value = flag and flag.form in ("value", "list", "truthy") and flag.kind != "nothing"
        if takes_value and not has_value:
            next(words, None)
    return positional, is_certain


# The result is cached, because one plan asks for the flags of the same program several times.
@lru_cache(maxsize=1)
def defined_flags(program: Program) -> Flags:
    """Return the flags that the program and its modules define, sorted by file and line."""
    return tuple(
        replace(flag, where=place_of(call), call=call)
        for call in executed_calls(program)
        for definition in _unrolled(call)
        if (flag := read_definition(definition))
    )


def _unrolled(call: ast.Call) -> list[ast.Call]:
    """Return one call for each flag that the given call defines in the rounds of a loop.

    Inside `for name in ("ps", "worker")`, the call `add_argument("--" + name)` defines two flags.
    The result is two calls, with the first arguments "--ps" and "--worker". A call whose first
    argument does not depend on such a loop is returned as it is.
    """
    if not call.args or literal_text(call.args[0]) is not None:
        return [call]
    texts = [_text_with(call.args[0], values) for values in _rounds_of_loops(call)]
    calls = []
    for text in filter(None, texts):
        calls.append(copy.copy(call))
        calls[-1].args = [ast.Constant(text), *call.args[1:]]
    return calls or [call]


def _rounds_of_loops(node: ast.AST) -> Iterator[dict[str, str]]:
    """Yield {loop variable: its text} for each round of each `for` around the node.

    Only loops over a literal list, tuple or set count.
    """
    for loop in enclosing_nodes(node):
        if isinstance(loop, ast.For):
            targets = elements(loop.target) or [loop.target]
            for row in elements(loop.iter):
                pairs = zip(targets, elements(row) or [row], strict=False)
                yield {
                    target.id: text
                    for target, value in pairs
                    if isinstance(target, ast.Name) and (text := literal_text(value)) is not None
                }


def _text_with(node: ast.expr, values: Mapping[str, str]) -> str | None:
    """Return the value of an expression that makes a text from variables; None if it is not known.

    `values`: {variable: its text}.
    """
    match node:
        case ast.Name(name):
            return values.get(name)
        case ast.BinOp(left, ast.Add(), right):
            parts = [_text_with(left, values), _text_with(right, values)]
        case ast.BinOp(ast.Constant(str(form)), ast.Mod(), ast.Name(name)) if name in values:
            return form.replace("%s", values[name])
        case ast.JoinedStr(texts):
            parts = [_text_with(each, values) for each in texts]
        case ast.FormattedValue(value):
            return _text_with(value, values)
        case _:
            return literal_text(node)
    return None if None in parts else "".join(filter(None, parts))


def executed_calls(program: Program) -> Iterator[ast.Call]:
    """Yield every call in the program.

    In imported modules, calls inside an `if __name__ == "__main__":` block are left out, because
    they do not run.
    """
    for position, module in enumerate(program.modules):
        skipped = [subtree(each) for each in module.tree.body if position and is_main_block(each)]
        unused = {id(node) for nodes in skipped for node in nodes}
        yield from (node for node in module.find(ast.Call) if id(node) not in unused)


def is_argparse_definition(call: ast.Call) -> bool:
    """Return whether the call is add_argument of argparse or add_option of optparse."""
    return last_name(call.func) in ("add_argument", "add_option")


def literal_arguments(call: ast.Call) -> list[str]:
    """Return the values of those positional arguments of a call that are string literals."""
    return [word for argument in call.args if (word := literal_text(argument)) is not None]


def read_definition(call: ast.Call) -> Flag | None:
    """Return the flag that this call defines, or None. The flag's field `where` is still empty."""
    name = last_name(call.func)
    absl = name.startswith("DEFINE_")
    if is_argparse_definition(call):
        flag, library = _from_argparse(call), "argparse"
    elif absl:
        flag, library = _from_absl(call), "absl"
    else:
        flag, library = (_from_click(call) if name == "option" else None), "click"
    if flag is None:
        return None
    default = argument(call, "default", 1 if absl else None)
    match default:
        case None | ast.Constant(None | ""):
            empty = not (argument(call, "action") or argument(call, "is_flag"))
        case _:
            empty = False
    return replace(
        flag,
        library=library,
        separator="multi" if is_true(argument(call, "multiple")) else flag.separator,
        spellings=flag.spellings or (flag.spelling,),
        help=literal_text(argument(call, "help"))
        or " ".join(literal_arguments(call)[2:] if absl else ()),
        empty=empty,
        is_on=isinstance(default, ast.Constant) and default.value == 1,
    )


def _from_argparse(call: ast.Call) -> Flag | None:
    words, action = literal_arguments(call), argument(call, "action")
    spelled = tuple(word for word in words if word.startswith("-"))
    if not words or (not spelled and len(words) > 1):
        return None
    spelling = next((word for word in spelled if word.startswith("--")), words[0])
    dest = literal_text(argument(call, "dest")) or plain_name(spelling)
    flag = Flag("", spelling, dest=dest, spellings=spelled)
    if last_name(action) == "BooleanOptionalAction":
        return replace(flag, form="pair", off=f"--no-{spelling.lstrip('-')}", kind="nothing")
    if form := _ACTIONS.get(literal_text(action)):
        return replace(flag, form=form, kind="nothing")
    flag = _with_type_and_choices(flag, call)
    if not spelled:
        return replace(flag, spelling="", form="position", dest=words[0])
    if literal_text(argument(call, "nargs")) in ("+", "*"):
        return replace(flag, form="list")
    by_class = flag.kind == "bool" and literal_text(argument(call, "type")) is None
    return replace(flag, form="truthy") if by_class else flag


def _with_type_and_choices(flag: Flag, call: ast.Call) -> Flag:
    """Return the flag with its type and choices, from a call of add_argument or add_option."""
    named = argument(call, "type")
    flag = replace(
        _with_type(flag, call, named), choices=_constant_texts(argument(call, "choices"))
    )
    is_own = flag.kind == "text" or literal_text(named) is not None
    return replace(flag, parser=named) if is_own and last_name(named) not in _TEXTS else flag


def _from_absl(call: ast.Call) -> Flag | None:
    """Return the flag that DEFINE_integer("name", default, ...) or a similar call defines.

    The function's name tells the type of the value.
    """
    function, name = last_name(call.func), literal_text(argument(call, "name", 0))
    if not name:
        return None
    is_enum = function == "DEFINE_enum" and argument(call, "case_sensitive") is None
    return Flag(
        "",
        f"--{name}",
        kind=_KINDS.get(function.rpartition("_")[2], "text"),
        choices=_constant_texts(argument(call, "enum_values", 2)) if is_enum else (),
        default=literal_text(argument(call, "default", 1)) or "",
        dest=plain_name(name),
        separator=_LISTS.get(function, ""),
    )


def _from_click(call: ast.Call) -> Flag | None:
    spelled = [word.partition("/") for word in literal_arguments(call) if word.startswith("-")]
    if not spelled:
        return None
    own = next((word for word in literal_arguments(call) if not word.startswith("-")), "")
    long = ((on.strip(), off.strip()) for on, _, off in spelled if on.startswith("--"))
    spelling, off = next(long, (spelled[0][0], ""))
    names = tuple(on.strip() for on, _, _ in spelled)
    flag = Flag("", spelling, off=off, dest=own or plain_name(spelling), spellings=names)
    is_switch = is_true(argument(call, "is_flag"))
    if off or is_switch or is_true(argument(call, "count")):
        return replace(
            flag, form="pair" if off else "switch" if is_switch else "value", kind="nothing"
        )
    match argument(call, "type"):
        case ast.Call(function, arguments, keywords):
            flag = _with_type(flag, call, function)
            is_choice = last_name(function) == "Choice" and arguments and not keywords
            return replace(flag, choices=_constant_texts(arguments[0])) if is_choice else flag
        case named:
            return _with_type(flag, call, named)


def _with_type(flag: Flag, call: ast.Call, type_node: ast.expr | None) -> Flag:
    """Return the flag with its type, default and number of words.

    `type_node`: the expression that names the type, such as `int` in `type=int`.
    """
    words = getattr(argument(call, "nargs"), "value", None)
    return replace(
        flag,
        kind=_KINDS.get((literal_text(type_node) or last_name(type_node)).lower(), "text"),
        count=words if isinstance(words, int) else 1,
        default=literal_text(argument(call, "default") or argument(call, "default_value")) or "",
    )


def _is_number(value: str, kind: Kind) -> bool:
    """Return whether `value` is a number that a flag of this kind accepts.

    Returns False if flags of this kind do not have numbers as values.
    """
    try:
        {"int": int, "float": float}[kind](value)
    except (KeyError, ValueError):
        return False
    return True


def _constant_texts(node: ast.expr | None) -> tuple[str, ...]:
    """Return the elements of a literal list as texts.

    Returns () if the expression is not a literal list, or if an element is not a constant.
    """
    values = elements(node)
    constants = [str(each.value) for each in values if isinstance(each, ast.Constant)]
    return tuple(constants) if len(constants) == len(values) else ()
