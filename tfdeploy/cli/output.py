"""Print the answers of verbs as JSON on stdout, and messages to the operator on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar


def print_json(answer: Mapping[str, object]) -> None:
    """Print the answer of a verb as one line of JSON on stdout."""
    print(json.dumps(answer))


def print_message(text: object) -> None:
    """Give a message to `message_sink`, which prints it on stderr unless the Python API runs."""
    message_sink.get()(str(text))


def _print_on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


message_sink: ContextVar[Callable[[str], None]] = ContextVar(
    "message_sink", default=_print_on_stderr
)
