"""Replace functions of TensorFlow and Python by wrappers that call the original function.

Classes are changed in place, so that the change applies to every name under which TensorFlow
exports them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator

from . import task


def wrap_function(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that replaces the function `owner.name` by the decorated function.

    The decorated function gets the original function as its first argument."""
    original = getattr(owner, name)

    def replace(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, wrapped)

    return replace


@contextlib.contextmanager
def report_errors(patch: str) -> Iterator[None]:
    """Catch an error in the `with` block, and report that the patch named `patch` has failed. The
    program continues after the block."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 the program continues without the patch
        task.print_failure(patch, error)


def call_after_init(cls: Any, call: Callable[[Any], None]) -> None:
    """Call `call` with each new instance of `cls`. If `call` fails, the error is reported and the
    program keeps its instance."""

    @wrap_function(cls, "__init__")
    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        with report_errors(call.__module__):
            call(self)


def set_default_argument(cls: Any, argument: str, value: Any) -> None:
    """Change the default value of an argument of `cls.__init__`. A value that the program passes is
    kept, unless it equals the old default."""
    # Imported here, because the import takes 5 ms, and programs without TensorFlow do not need it.
    from inspect import signature as signature_of

    signature = signature_of(cls.__init__)
    before = signature.parameters[argument].default

    @wrap_function(cls, "__init__")
    def init(original: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        if bound.arguments.get(argument, before) == before:
            bound.arguments[argument] = value
        original(*bound.args, **bound.kwargs)
