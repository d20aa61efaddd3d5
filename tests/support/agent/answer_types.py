"""What of an answer the type of the control side does not know."""

from __future__ import annotations

from typing import Any

import msgspec

from tfdeploy.agent import wire
from tfdeploy.model.answers.reading import read


def unknown(said: Any, cls: type[Any]) -> list[str]:
    """The fields of an answer that its type would drop, "tasks.0.pid". Raises BadShape where it is
    no such value."""
    return list(_dropped(said, _plain(read(said, cls)), ""))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=wire.to_wire)


def _dropped(said: Any, kept: Any, at: str) -> Any:
    if isinstance(said, dict):
        for name, each in said.items():
            if name in kept:
                yield from _dropped(each, kept[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(said, list):
        for number, (each, its) in enumerate(zip(said, kept, strict=True)):
            yield from _dropped(each, its, f"{at}.{number}")
