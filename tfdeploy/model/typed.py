"""Convert JSON to typed values, safely from any thread.

msgspec 0.22 inspects a class at its first use. It crashes the process if two threads do so at the
same time, so a lock protects each use. In older releases, which pyproject.toml allows, msgspec's
errors are not ValueErrors.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

V = TypeVar("V")
msgspec_lock = threading.Lock()


def convert(value: Any, cls: type[V]) -> V:
    """Return `value` as an instance of `cls`. Raises msgspec.ValidationError if `value` does not
    fit."""
    with msgspec_lock:
        return msgspec.convert(value, cls)


def decode(text: bytes | str, cls: type[V]) -> V:
    """Return the JSON text as an instance of `cls`. Raises msgspec.ValidationError or
    msgspec.DecodeError."""
    with msgspec_lock:
        return msgspec.json.decode(text, type=cls)
