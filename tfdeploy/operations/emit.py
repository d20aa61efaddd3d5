"""Short ways to emit events, so that operations read as what they do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfdeploy.model.events import Emit, Event


def note(emit: Emit, text: str, *, level: str = "info", host: str | None = None, run: str | None = None) -> None:
    emit(Event("note", time.time(), run=run, host=host, data={"level": level, "text": text}))


def host_news(emit: Emit, host: str, state: str, text: str | None = None, *, run: str | None = None) -> None:
    data: dict[str, Any] = {"state": state}
    if text:
        data["text"] = text
    emit(Event("host", time.time(), run=run, host=host, data=data))


@contextmanager
def step(emit: Emit, name: str, run: str | None = None) -> Iterator[None]:
    """Brackets one step of a launch or sync: begin, then done or failed."""

    def say(state: str) -> None:
        emit(Event("step", time.time(), run=run, data={"step": name, "state": state}))

    say("begin")
    try:
        yield
    except BaseException:
        say("failed")
        raise
    say("done")
