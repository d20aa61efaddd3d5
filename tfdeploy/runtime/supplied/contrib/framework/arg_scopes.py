"""Supply arg_scope, which sets default arguments for the layers that are called within a `with`
block."""

import contextlib
import functools

# For each open `with` block, a mapping from functions to their default arguments; the innermost
# block comes last.
_scopes = [{}]  # type: list[dict[object, dict[str, object]]]


def _arg_scope_key_of(func):
    return getattr(func, "_arg_scope_key", (func.__module__, func.__name__))


def add_arg_scope(func):
    """Return `func` with default arguments that `arg_scope` can set."""

    @functools.wraps(func)
    def scoped(*args, **kwargs):
        return func(*args, **dict(_scopes[-1].get(_arg_scope_key_of(func), {}), **kwargs))

    vars(scoped)["_arg_scope_key"] = _arg_scope_key_of(func)
    return scoped


@contextlib.contextmanager
def arg_scope(list_ops_or_scope, **kwargs):
    """Set default arguments of functions within a `with` block.

    `with arg_scope([conv2d], padding="SAME") as scope:` sets the defaults; `with arg_scope(scope):`
    sets the same defaults again."""
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError(
                "When attempting to re-use a scope by suppling a dictionary, kwargs must be empty."
            )
        scope = dict(list_ops_or_scope)
    else:
        scope = dict(_scopes[-1])
        for func in list_ops_or_scope:
            if not hasattr(func, "_arg_scope_key"):
                raise ValueError(
                    "%s is not decorated with @add_arg_scope" % (_arg_scope_key_of(func),)
                )
            scope[_arg_scope_key_of(func)] = dict(scope.get(_arg_scope_key_of(func), {}), **kwargs)
    _scopes.append(scope)
    try:
        yield scope
    finally:
        _scopes.pop()
