"""Convert JSON to typed values, from any thread.

msgspec 0.22 inspects a class at its first use, and crashes the process when two threads do so at
once: hence the lock. In older releases, which pyproject.toml allows, its errors are not
ValueErrors.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

V = TypeVar("V")
msgspec_lock = threading.Lock()


def convert(value: Any, cls: type[V]) -> V:
    """Return `value` as a `cls`. Raises msgspec.ValidationError if it is not one."""
    with msgspec_lock:
        return msgspec.convert(value, cls)


def decode(text: bytes | str, cls: type[V]) -> V:
    """Return the JSON text as a `cls`. Raises msgspec.ValidationError, msgspec.DecodeError."""
    with msgspec_lock:
        return msgspec.json.decode(text, type=cls)
