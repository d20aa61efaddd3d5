"""Find fields of a host's answer that the control machine's type for this answer does not have."""

from __future__ import annotations

from typing import Any

import msgspec

from tfdeploy.agent import wire
from tfdeploy.text.typed import convert_untrusted


def unknown(answer: Any, cls: type[Any]) -> list[str]:
    """Return the dotted names of the answer's fields, such as "tasks.0.pid", that the type `cls`
    does not have.

    Raises InvalidJsonValue if the answer does not fit the type.
    """
    return list(_dropped(answer, _plain(convert_untrusted(answer, cls)), ""))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=wire.to_wire)


def _dropped(answer: Any, kept: Any, at: str) -> Any:
    if isinstance(answer, dict):
        for name, each in answer.items():
            if name in kept:
                yield from _dropped(each, kept[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(answer, list):
        for number, (each, its) in enumerate(zip(answer, kept, strict=True)):
            yield from _dropped(each, its, f"{at}.{number}")
