"""JSON's values as typed ones, from any thread.

msgspec 0.22 learns a class at its first use, and crashes the process when two threads meet in that; so one at a time.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

V = TypeVar("V")
one_at_a_time = threading.Lock()


def convert(value: Any, cls: type[V]) -> V:
    """Raises msgspec.ValidationError on what is no such value."""
    with one_at_a_time:
        return msgspec.convert(value, cls)


def decode(text: bytes | str, cls: type[V]) -> V:
    """Raises msgspec.ValidationError, msgspec.DecodeError."""
    with one_at_a_time:
        return msgspec.json.decode(text, type=cls)
