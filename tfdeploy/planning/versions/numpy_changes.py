"""Writes notes on a program that needs an older NumPy than its hosts have.

NumPy has dropped some names. Since NumPy 2.4, it also no longer accepts an array of one element as
a number. For example, if w is the value of `tf.get_variable("w", [1])`, then `"%f" % w` raises
TypeError.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Notes
from tfdeploy.planning.source import guards
from tfdeploy.planning.source.expressions import dotted_name, elements, last_name, target_names
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.runtime.old_names import numpy_names
from tfdeploy.text.names import fold_names
from tfdeploy.text.units import list_first, version_numbers

_NO_NUMBER = (2, 4)
# From this NumPy version on, a plan has a note about uses of names that NumPy has removed.
_DROPPED = (1, 24)
_NUMBER = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?[diufFeEgG]")
_MAKES = ("Variable", "get_variable")
# Names that NumPy has removed, without `bool` and `long`, which NumPy 2 has again.
_NAMES = numpy_names.RENAMED.keys() - {"bool", "long"}
_MOST = 4


def notes(job: Job, program: Program, facts: FactsByHost) -> Notes:
    newest = max((each.numpy for each in facts.values()), key=version_numbers, default=None)
    texts = []
    if version_numbers(newest) >= _DROPPED and (names := _dropped_names_used(program)):
        effect = (
            "the program fails where it uses such a name; to prevent this, write `numpy<1.24` into "
            "the requirements of `setup`"
        )
        if rules_of(job.mode).tensorflow:
            effect = "tfdeploy supplies a replacement"
        texts.append(f"NumPy has removed {list_first(names, _MOST)}: {effect}")
    if version_numbers(newest) >= _NO_NUMBER and (where := _where_array_is_number(program)):
        hosts = fold_names(
            name for name, each in facts.items() if version_numbers(each.numpy) >= _NO_NUMBER
        )
        texts.append(
            f"{where} uses a fetched array of one element as a number, which raises TypeError "
            f"since NumPy 2.4 ({newest} on {hosts}): write `numpy<2.4` into the requirements of "
            "`setup`"
        )
    return tuple(texts)


def _dropped_names_used(program: Program) -> list[str]:
    """Return the dropped names of NumPy that the program uses, such as "np.float (train.py:3)"."""
    guarded, first = guards.guarded_nodes(program), dict[str, str]()
    for module in program.modules:
        imports = (alias for node in module.find(ast.Import) for alias in node.names)
        aliases = {alias.asname or alias.name for alias in imports if alias.name == "numpy"}
        uses = [node for node in module.find(ast.Attribute) if node.attr in _NAMES]
        for node in sorted(uses, key=lambda node: node.lineno):
            if dotted_name(node.value) in aliases and id(node) not in guarded:
                first.setdefault(dotted_name(node), place_of(node))
    return [f"{name} ({where})" for name, where in first.items()]


def _where_array_is_number(program: Program) -> str:
    """Return where the program uses an array of one element as a number, such as "train.py:12".

    Only arrays that are values of TensorFlow variables count. Returns "" if there is no such place.
    """
    for module in program.modules:
        assigned = module.find(ast.Assign)
        single = {
            name
            for node in assigned
            if _makes_one_element_variable(node.value)
            for name in target_names(node.targets)
        }
        fetched = {name for node in assigned for name in _one_element_names(node, single)}
        for node in module.find(ast.Call, ast.BinOp):
            if any(
                _fetches_one_element(each, single)
                or (isinstance(each, ast.Name) and each.id in fetched)
                for each in _number_expressions(node)
            ):
                return place_of(node)
    return ""


def _makes_one_element_variable(value: ast.expr) -> bool:
    """Return whether the expression makes a TensorFlow variable that has a single element.

    Examples: `tf.get_variable("w", [1])`, `tf.Variable(tf.zeros([1]))`, `tf.Variable([.3])`.
    """
    if not isinstance(value, ast.Call) or last_name(value.func) not in _MAKES:
        return False
    given = [
        *value.args,
        *(word.value for word in value.keywords if word.arg in ("shape", "initial_value")),
    ]
    inner = [
        word
        for each in given
        if isinstance(each, ast.Call)
        for word in (*each.args, *(key.value for key in each.keywords))
    ]
    first = given[:1] if last_name(value.func) == "Variable" else []
    return any(_is_list_of(each, 1) for each in (*given, *inner)) or any(map(_is_list_of, first))


def _is_list_of(node: ast.expr, number: int | None = None) -> bool:
    """Return whether the node is a literal list of a single number.

    If `number` is not None, the list must contain exactly this number.
    """
    match node:
        case ast.List([ast.Constant(int() | float() as value)]) | ast.Tuple(
            [ast.Constant(int() | float() as value)]
        ):
            return number in (None, value)
    return False


def _one_element_names(node: ast.Assign, single: set[str]) -> Iterator[str]:
    """Yield the names to which this statement assigns the value of a one-element variable.

    Examples: `w = sess.run(W)`, `_, w = sess.run([train, W])`.
    """
    if _fetches_one_element(node.value, single):
        yield from target_names(node.targets)
    match node.value:
        case ast.Call(function, [fetches, *_]) if last_name(function) == "run":
            for pair in zip(elements(fetches), elements(node.targets[0]), strict=False):
                match pair:
                    case ast.Name(fetch), ast.Name(name) if fetch in single:
                        yield name


def _fetches_one_element(node: ast.expr, single: set[str]) -> bool:
    """Return whether the node is `sess.run(W)` or `W.eval()` for a one-element variable W."""
    match node:
        case ast.Call(ast.Attribute(ast.Name(name), "eval")):
            return name in single
        case ast.Call(ast.Attribute(attr="run"), [ast.Name(name), *_]):
            return name in single
    return False


def _number_expressions(node: ast.expr) -> list[ast.expr]:
    """Return the parts of this expression that must be numbers.

    In `"%f %d" % (a, b)`, they are a and b. In `float(x)` and `int(x)`, it is x.
    """
    match node:
        case ast.Call(ast.Name("float" | "int"), arguments):
            return arguments[:1]
        case ast.BinOp(ast.Constant(str(text)), ast.Mod(), right):
            values = right.elts if isinstance(right, ast.Tuple) else [right]
            forms = re.findall(r"%(?!%)[^%a-zA-Z]*[a-zA-Z]", text.replace("%%", ""))
            pairs = zip(forms, values, strict=False)
            return [value for form, value in pairs if _NUMBER.fullmatch(form)]
    return []
