"""Start threads that do not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def start_thread(
    target: Callable[..., object], *arguments: Any, name: str | None = None
) -> threading.Thread:
    """Call `target(*arguments)` in a new daemon thread, and return the thread."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    return thread
