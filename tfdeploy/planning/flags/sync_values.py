"""Finds the values of a flag that switch a program's synchronous training on and off.

The program may define them: for example, it may accept the texts True and False, but not 1 and 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from tfdeploy.planning.flags.flag_definitions import Flag
from tfdeploy.planning.source.expressions import last_name, literal_text
from tfdeploy.planning.source.source import Program


def with_sync_values(flag: Flag, program: Program) -> Flag:
    """Return the flag with values that the program's function for converting the text accepts.

    For example, `type=str2bool` may accept True and False, but not 1 and 0. A program may also test
    the text without a conversion, as in `if flag:`. Then the flag's form becomes "truthy", because
    every text except "" is true.
    """
    if flag.name != "issync" or flag.form != "value" or flag.sync_values != ("0", "1"):
        return flag
    if flag.parser is not None:
        return (
            replace(flag, sync_values=("False", "True"))
            if _accepts_true_not_one(flag.parser, program)
            else flag
        )
    bare = flag.kind == "text" and flag.because and flag.default.strip() not in ("0", "1")
    return replace(flag, form="truthy") if bare else flag


def _accepts_true_not_one(parser: ast.expr, program: Program) -> bool:
    """Return whether the function that converts the flag's text accepts "true" but not "1"."""
    constants = {
        str(node.value).lower()
        for function in _converter_functions(parser, program)
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int)
    }
    return bool(constants & {"true", "t"}) and "1" not in constants


def _converter_functions(parser: ast.expr, program: Program) -> Iterator[ast.AST]:
    """Yield each function that the argument `type` of a flag may mean.

    `type` is a lambda, the name of a function, or a text for which the program registers a
    function, as in `p.register("type", "bool", f)`.
    """
    if isinstance(parser, ast.Lambda):
        yield parser
    yield from (node for node in program.find(ast.FunctionDef) if node.name == last_name(parser))
    for call in program.find(ast.Call) if literal_text(parser) else ():
        match call.args:
            case [_, kind, function] if last_name(call.func) == "register":
                if literal_text(kind) == literal_text(parser):
                    yield from _converter_functions(function, program)
