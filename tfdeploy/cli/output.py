"""Print the answers of verbs as JSON on stdout, and messages to the operator on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from tfdeploy.ui.sanitise import clean

# A message may name a thousand hosts.
_LONGEST_LINE = 1 << 16


def print_json(answer: Mapping[str, object]) -> None:
    """Print the answer of a verb as one line of JSON on stdout."""
    print(json.dumps(answer))


def print_message(text: object) -> None:
    """Print a message on stderr, sanitised. If the Python API has set `message_sink`, pass the
    message to that function instead."""
    shown = "\n".join(clean(line, _LONGEST_LINE) for line in str(text).split("\n"))
    if sink := message_sink.get():
        sink(shown)
    else:
        print(shown, file=sys.stderr)


# A function that receives each message. If it is None, messages are printed on stderr.
message_sink: ContextVar[Callable[[str], None] | None] = ContextVar("message_sink", default=None)
