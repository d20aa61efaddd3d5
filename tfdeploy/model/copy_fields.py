"""Make rows, and other records, from values that have fields of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

V = TypeVar("V")


def copy_fields(kind: type[V], value: object = None, **given: Any) -> V:
    """Return a `kind`, a TypedDict or a dataclass, in the order of its fields, `error` last.

    A field that is not `given` is that of `value`, or None without a `value`.
    """
    names = sorted(kind.__annotations__, key="error".__eq__)
    others = [name for name in names if name not in given]
    own = {name: None if value is None else getattr(value, name) for name in others}
    make = cast("Callable[..., V]", kind)
    return make(**{name: {**own, **given}[name] for name in names})
