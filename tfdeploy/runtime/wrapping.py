"""Replaces functions of TensorFlow and Python by ours, which call the original.

Classes are changed in place, so that every name under which TensorFlow exports them sees the
change.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from . import task


def around(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Return a decorator for the function that takes the place of `owner.name`.

    The function gets the original as its first argument."""
    original = getattr(owner, name)

    def replace(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, wrapped)

    return replace


def after_init(cls: Any, call: Callable[[Any], None]) -> None:
    """Let `call` see each new instance. If it fails, the program goes on with its instance."""

    @around(cls, "__init__")
    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            call(self)
        except Exception as error:  # noqa: BLE001 the instance is made
            task.say_failed(call.__module__, error)


def set_default(cls: Any, argument: str, value: Any) -> None:
    """Give an argument of `cls.__init__` another default. The program's own value is kept, unless
    it is the old default."""
    from inspect import signature as signature_of  # costs programs that use no TensorFlow 5 ms

    signature = signature_of(cls.__init__)
    before = signature.parameters[argument].default

    @around(cls, "__init__")
    def init(original: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        if given.arguments.get(argument, before) == before:
            given.arguments[argument] = value
        original(*given.args, **given.kwargs)
