"""Build rows and other records from values that have fields of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

V = TypeVar("V")


def copy_fields(kind: type[V], value: object = None, **given: Any) -> V:
    """Return an instance of `kind`, a TypedDict or a dataclass. Its fields keep their order, but
    `error` comes last.

    A field that is not in `given` is copied from `value`. If `value` is None, such a field becomes
    None.
    """
    names = sorted(kind.__annotations__, key="error".__eq__)
    others = [name for name in names if name not in given]
    copied = {name: None if value is None else getattr(value, name) for name in others}
    make = cast("Callable[..., V]", kind)
    return make(**{name: {**copied, **given}[name] for name in names})
