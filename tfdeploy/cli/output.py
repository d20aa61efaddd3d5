"""Print the answers of verbs as JSON on stdout, and messages to the operator on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping


def print_json(answer: Mapping[str, object]) -> None:
    """Print the answer of a verb as one line of JSON on stdout."""
    print(json.dumps(answer))


def print_message(text: object) -> None:
    """Print a message on stderr."""
    print(text, file=sys.stderr)
