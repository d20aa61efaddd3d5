"""Declare each flag once, as a field of a verb's record, and build argparse from the fields."""

from __future__ import annotations

import argparse
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Name of a group of flags that exclude each other: a command line may have at most one of them.
ALTERNATIVES = "alternatives"


def option(
    *names: str,
    default: Any = None,
    env: Callable[[str], object] | None = None,
    group: str | None = None,
    more_flags: Any = (),
    **options: Any,
) -> Any:
    """Return a dataclass field that the flags `names` set.

    `env`: a function that takes the field's name and returns the default from the environment, or
    None.
    `group`: the title above the flag in the help, or ALTERNATIVES.
    `more_flags`: {further flag that sets the same field: its options for add_argument}.
    `options`: keyword arguments of add_argument.
    """
    more = dict(more_flags)
    declared = {"names": names, "env": env, "group": group, "more_flags": more, "options": options}
    return field(default=default, metadata=declared)


def switch(*names: str, default: bool = False, **options: Any) -> Any:
    """Return a dataclass field for a flag without a value.

    The value of the field is `default`. If the flag is given, the value is `not default`.
    """
    return option(*names, default=default, action=f"store_{not default}".lower(), **options)


def argument(metavar: str, **options: Any) -> Any:
    """Return a dataclass field whose value is a positional argument."""
    return option(metavar=metavar, **options)


def add_declared_arguments(
    parser: argparse.ArgumentParser, record: type[Any], last_group: str = ""
) -> None:
    """Add the flags that the fields of `record` declare. The flags of the group `last_group` come
    last."""
    groups: dict[str | None, Any] = {None: parser}
    declared = [each for each in fields(record) if each.metadata]
    for each in sorted(declared, key=lambda each: each.metadata["group"] == last_group):
        group, env = each.metadata["group"], each.metadata["env"]
        if group not in groups:
            groups[group] = (
                parser.add_mutually_exclusive_group()
                if group == ALTERNATIVES
                else parser.add_argument_group(group)
            )
        options = {"default": (env and env(each.name)) or each.default, **each.metadata["options"]}
        groups[group].add_argument(*each.metadata["names"], dest=each.name, **options)
        for name, more_options in each.metadata["more_flags"].items():
            groups[group].add_argument(name, dest=each.name, **more_options)
