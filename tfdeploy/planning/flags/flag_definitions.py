"""Every flag that a program defines, in its own spelling, read from its syntax tree.

Knows argparse (and optparse), absl and tf.app.flags, click. Which of them tell of the cluster: `flags`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from tfdeploy.model import placeholders
from tfdeploy.planning.flags import flag_types
from tfdeploy.planning.flags.flag_types import FlagType
from tfdeploy.planning.source.expressions import is_true, last_name, text
from tfdeploy.planning.source.source import Program, main_block

# value: --flag=value. switch: --flag when it is on. negated: --flag when it is off. pair: --flag or its `off` word.
# list: --flag a b c. truthy: argparse's type=bool, for which every text but the empty one is true.
# position: the value alone, without a flag.
ADDRESSES = ("ps_hosts", "worker_hosts", "chief_hosts")  # several, with commas between
Form = Literal["value", "switch", "negated", "pair", "list", "truthy", "position"]


@dataclass(frozen=True)
class Flag:
    """One flag as the program defines it, at `where` ("train.py:12").

    `name`: what of the cluster it tells, one of `flags.NAMES`; "" where that is not known (yet).
    """

    name: str
    spelling: str
    form: Form = "value"
    off: str = ""
    value_type: FlagType = field(default_factory=FlagType)
    where: str = ""
    dest: str = ""  # the attribute that has its value
    spellings: tuple[str, ...] = ()
    library: str = ""  # "absl", "argparse" or "click"
    help: str = ""
    empty: bool = False  # its default is None or ""
    template: str = ""  # what it gets, with placeholders; "": the value of `name`
    separator: str = ""  # how the program splits several addresses; "json": a JSON list; "multi": a flag for each; "": ","
    sync_values: tuple[str, str] = ("0", "1")  # for issync: its values in async and in sync
    because: str = ""  # the place that shows what it is, where its name does not
    position: int = 0  # of a value without a flag: the first is 1

    @property
    def plain_name(self) -> str:
        """As `flags.NAMES` are written: "task_id" of --task-id."""
        return plain(self.spelling)

    @property
    def names(self) -> tuple[str, ...]:
        """All that its value tells."""
        return tuple(placeholders.names(self.template)) or (self.name,)

    def text(self, given: Mapping[str, str]) -> str:
        """Its value for a task. `given`: what the placeholders stand for there."""
        if self.name == "issync":
            return self.sync_values[given["issync"] == "1"]
        if self.template:
            return placeholders.fill(self.template, given)
        value = given[self.name]
        if self.name not in ADDRESSES or self.separator in ("", ",", "multi"):
            return value
        return json.dumps(value.split(",")) if self.separator == "json" else value.replace(",", self.separator)

    def arguments(self, given: Mapping[str, str]) -> tuple[str, ...]:
        """The words of the command line that give it its value for a task."""
        value = self.text(given)
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


def plain(spelling: str) -> str:
    return spelling.lstrip("-").replace("-", "_")


@lru_cache(maxsize=1)  # several decisions of one plan ask
def definitions(program: Program) -> tuple[Flag, ...]:
    """Of the program and of the modules that it imports, in the order of files and lines."""
    return tuple(
        replace(
            flag,
            where=f"{path}:{call.lineno}",
            spellings=flag.spellings or (flag.spelling,),
            help=_help(call),
            empty=_is_empty(call),
        )
        for path, call in calls(program)
        if (flag := of_call(call))
    )


def calls(program: Program) -> Iterator[tuple[str, ast.Call]]:
    """(file, call) of every call, but for those that only run where an imported module is the program."""
    for position, module in enumerate(program.modules):
        skipped = [module.within(each) for each in module.tree.body if position and main_block(each)]
        unused = {id(node) for nodes in skipped for node in nodes}
        yield from ((module.path, node) for node in module.find(ast.Call) if id(node) not in unused)


def is_argparse(call: ast.Call) -> bool:
    return last_name(call.func) in ("add_argument", "add_option")


def strings(call: ast.Call) -> list[str]:
    return [word for argument in call.args if (word := text(argument)) is not None]


def given(call: ast.Call) -> Mapping[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def of_call(call: ast.Call) -> Flag | None:
    """The flag that this call defines, without its place."""
    name = last_name(call.func)
    readers = {"argparse": is_argparse(call), "absl": name.startswith("DEFINE_"), "click": name == "option"}
    library = next((each for each, reads in readers.items() if reads), "")
    flag = {"argparse": _from_argparse, "absl": _from_absl, "click": _from_click}[library](call) if library else None
    return replace(flag, library=library) if flag else None


def _help(call: ast.Call) -> str:
    absl = last_name(call.func).startswith("DEFINE_")
    return text(given(call).get("help")) or " ".join(strings(call)[2:] if absl else ())


def _is_empty(call: ast.Call) -> bool:
    """Whether it has no default, or an empty one, and takes a value."""
    absl = last_name(call.func).startswith("DEFINE_")
    default = given(call).get("default") or (call.args[1] if absl and call.args[1:] else None)
    valued = "action" not in given(call) and "is_flag" not in given(call)
    return valued and (default is None or (isinstance(default, ast.Constant) and default.value in (None, "")))


def _from_argparse(call: ast.Call) -> Flag | None:
    words, keywords = strings(call), given(call)
    spelled = tuple(word for word in words if word.startswith("-"))
    if not words or (words and not spelled and len(words) != 1):
        return None
    long = next((word for word in spelled if word.startswith("--")), words[0])
    dest = text(keywords.get("dest")) or plain(long)
    if not spelled:
        return Flag("", "", "position", value_type=flag_types.of_argparse(keywords), dest=words[0])
    return replace(_argparse_form(keywords, long), dest=dest, spellings=spelled)


def _argparse_form(keywords: Mapping[str | None, ast.expr], spelling: str) -> Flag:
    action, taken = keywords.get("action"), flag_types.of_argparse(keywords)
    if text(action) in ("store_true", "store_false"):
        return Flag("", spelling, "switch" if text(action) == "store_true" else "negated", value_type=taken)
    if last_name(action) == "BooleanOptionalAction":
        return Flag("", spelling, "pair", f"--no-{spelling.lstrip('-')}", taken)
    if text(keywords.get("nargs")) in ("+", "*"):
        return Flag("", spelling, "list", value_type=taken)
    by_class = taken.kind == "bool" and text(keywords.get("type")) is None
    return Flag("", spelling, "truthy" if by_class else "value", value_type=taken)


_LISTS = {"DEFINE_list": ",", "DEFINE_multi_string": "multi", "DEFINE_spaceseplist": " "}


def _from_absl(call: ast.Call) -> Flag | None:
    keywords = given(call)
    called = next(iter([*strings(call)[:1], text(keywords.get("name"))]), None) or ""
    kept = _LISTS.get(last_name(call.func), "")
    taken = flag_types.of_absl(call, keywords)
    return Flag("", f"--{called}", value_type=taken, dest=called.replace("-", "_"), separator=kept) if called else None


def _from_click(call: ast.Call) -> Flag | None:
    keywords = given(call)
    spelled = [word.partition("/") for word in strings(call) if word.startswith("-")]
    if not spelled:
        return None
    own = next((word for word in strings(call) if not word.startswith("-")), "")
    spelling, off = next(((on.strip(), off.strip()) for on, _, off in spelled if on.startswith("--")), (spelled[0][0], ""))
    names, dest = tuple(on.strip() for on, _, _ in spelled), own or plain(spelling)
    if off:
        return Flag("", spelling, "pair", off, FlagType("nothing"), dest=dest, spellings=names)
    form: Form = "switch" if is_true(keywords.get("is_flag")) else "value"
    return Flag("", spelling, form, value_type=flag_types.of_click(keywords), dest=dest, spellings=names)
