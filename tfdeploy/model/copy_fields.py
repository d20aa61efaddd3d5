"""Build rows and other records from values that have fields of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

V = TypeVar("V")


def copy_fields(record_type: type[V], copied_from: object = None, **overrides: Any) -> V:
    """Return an instance of `record_type`, a TypedDict or a dataclass. Its fields keep their order,
    but `error` comes last.

    A field that is not in `overrides` is copied from `copied_from`. If `copied_from` is None, such
    a field becomes None.
    """
    names = sorted(record_type.__annotations__, key="error".__eq__)
    others = [name for name in names if name not in overrides]
    copied = {name: None if copied_from is None else getattr(copied_from, name) for name in others}
    make = cast("Callable[..., V]", record_type)
    return make(**{name: {**copied, **overrides}[name] for name in names})
