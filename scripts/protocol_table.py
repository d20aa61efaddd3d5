"""Write the sections of docs/agent-protocol.md that describe the verbs and their answers.

A test compares the page with the output of this script. The arguments and the effect of a verb come
from the docstring of its function in the agent. The answer of a verb comes from the type that the
control machine expects.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

import tfdeploy.agent.serve
import tfdeploy.model.answers
from tfdeploy.agent import call
from tfdeploy.model import facts
from tfdeploy.text.typed import EmptyAnswer, StreamingVerb, Verb

PAGE = Path(__file__).parents[1] / "docs" / "agent-protocol.md"
FIRST = "### `audit`"  # the heading at which the generated part begins
END = "\n## Who calls\n"  # the heading after the generated part
_WIDTH = 100


def verbs() -> dict[str, Verb[Any] | StreamingVerb[Any, Any]]:
    """Return {name: verb} of every verb that the control side calls."""
    collected = [
        each
        for module in (*_modules(tfdeploy.model.answers), facts)
        for each in vars(module).values()
    ]
    return {each.name: each for each in collected if isinstance(each, (Verb, StreamingVerb))}


def agent_verbs() -> dict[str, call.Verb]:
    """Return {name: function} of every verb that the agent implements."""
    tables = [vars(each).get("VERBS", {}) for each in _modules(tfdeploy.agent.serve)]
    return {name: verb for table in tables for name, verb in table.items()}


def _modules(package: types.ModuleType) -> list[types.ModuleType]:
    names = [each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [importlib.import_module(name) for name in names]


def sections() -> str:
    """Return a section for each verb, then a list of the types in their answers."""
    answering, answers = agent_verbs(), verbs()
    kinds = sorted(
        {kind for verb in answers.values() for kind in _kinds(verb)} - {EmptyAnswer},
        key=lambda kind: kind.__name__,
    )
    parts = [_verb_section(name, answering[name], answers[name]) for name in sorted(answering)]
    return "\n".join(parts) + "\n## Answers\n\n" + "".join(map(_kind_item, kinds))


def _verb_section(name: str, function: call.Verb, verb: Verb[Any] | StreamingVerb[Any, Any]) -> str:
    does, args, errors = _split_docstring(inspect.getdoc(function) or "")
    marks = [mark for mark in ("fenced", "audited") if mark in vars(function)]
    items = f"items `{_shown(verb.item)}`, then " if isinstance(verb, StreamingVerb) else ""
    rows = {
        "Arguments": args,
        "Answer": f"{items}`{_shown(verb.value)}`",
        "Errors": errors,
        "Marks": ", ".join(marks),
    }
    lines = "".join(_wrapped(f"- {label}: {text}", "  ") for label, text in rows.items() if text)
    return f"### `{name}`\n\n{_wrapped(does)}\n{lines}"


def _kind_item(kind: type[msgspec.Struct]) -> str:
    fields = ", ".join(
        f"{each.encode_name}{'' if each.required else '?'}: {_shown(each.type)}"
        for each in structs.fields(kind)
    )
    text = _one_line(vars(kind).get("__doc__") or "")
    shown = f"[{fields}]" if kind.__struct_config__.array_like else fields
    return _wrapped(f"- **`{kind.__name__}`**: `{shown}`. {text}", "  ")


def _wrapped(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(
        text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _split_docstring(text: str) -> tuple[str, str, str]:
    """Return (what the verb does, its arguments, its errors) from a docstring."""
    parts = [_one_line(part) for part in text.split("\n\n")]
    args = next(
        (part.removeprefix("Args: ").rstrip(".") for part in parts if part.startswith("Args: ")), ""
    )
    errors = next(
        (
            part.removeprefix("Raises VerbError ").rstrip(".")
            for part in parts
            if part.startswith("Raises ")
        ),
        "",
    )
    does = " ".join(part for part in parts if not part.startswith(("Args: ", "Raises ")))
    return does, args, errors


def _kinds(verb: Verb[Any] | StreamingVerb[Any, Any]) -> Iterator[type[msgspec.Struct]]:
    for top in (verb.item, verb.value) if isinstance(verb, StreamingVerb) else (verb.value,):
        yield from _structs(top)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
        for each in structs.fields(hint):
            yield from _structs(each.type)
    for inner in typing.get_args(hint):
        yield from _structs(inner)


def _shown(hint: Any) -> str:
    """Return the name that the page shows for a type. For an object, this is the name of its class.
    For any other type, it is the name that JSON uses.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _shown(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if each is types.NoneType else _shown(each) for each in inner)
    if origin is list:
        return f"[{_shown(inner[0])}, ...]"
    if origin is tuple:
        return f"[{', '.join('...' if each is ... else _shown(each) for each in inner)}]"
    if origin is dict:
        return f"{{{_shown(inner[0])}: {_shown(inner[1])}}}"
    if origin is typing.Literal:
        return " or ".join(f'"{each}"' for each in inner)
    return _NAMES.get(hint, hint.__name__)


_NAMES = {str: "text", int: "number", float: "number", EmptyAnswer: "{}"}


def with_sections(page: str) -> str:
    """Return the page with its generated part replaced."""
    start, end = page.index(FIRST), page.index(END)
    return page[:start] + sections() + page[end:]


if __name__ == "__main__":
    PAGE.write_text(with_sections(PAGE.read_text()))
