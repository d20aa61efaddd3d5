"""Provide the parts of `dataclasses` that the records in wire.py need: fields with default values,
`replace`, and equality. Also provide `NamedTuple`.

Importing `dataclasses` and the modules that it needs (inspect, ast, dis) would take a third of the
start time of every process of the agent, and a megabyte of memory. Importing `typing` would take
about 3 ms. Type checkers see the original names.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field, replace
    from typing import NamedTuple
else:
    from collections import namedtuple

    class _Made:
        """A field whose default value, such as an empty list, is made anew for each record."""

        def __init__(self, default_factory, metadata):
            self.default_factory, self.metadata = default_factory, metadata

    _MISSING = object()  # marks a field for which no value was given

    def field(default_factory, metadata=None):
        return _Made(default_factory, metadata or {})

    def record(cls):
        names = list(cls.__annotations__)
        defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}

        def __init__(self, *values, **fields):
            if len(values) > len(names) or not set(fields) <= set(names[len(values) :]):
                raise TypeError(
                    "%s has the fields (%s), but got the values %r and the named values %r"
                    % (cls.__name__, ", ".join(names), values, fields)
                )
            fields.update(zip(names, values))  # noqa: B905 - Python 3.8 knows no strict
            for name in names:
                value = fields.get(name, defaults.get(name, _MISSING))
                if value is _MISSING:
                    raise TypeError("%s() needs %s" % (cls.__name__, name))
                setattr(self, name, value.default_factory() if isinstance(value, _Made) else value)

        cls.__init__, cls.__eq__, cls.__repr__, cls.__hash__ = __init__, _equal, _repr, None
        cls.REQUIRED = frozenset(names) - frozenset(defaults)
        cls.FIELDS = {
            name: defaults[name].metadata if isinstance(defaults.get(name), _Made) else {}
            for name in names
        }
        return cls

    def replace(value, **changes):
        return type(value)(**{**vars(value), **changes})

    def _equal(self, other):
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def _repr(self):
        return "%s(%s)" % (
            type(self).__name__,
            ", ".join("%s=%r" % pair for pair in vars(self).items()),
        )

    class _FromAnnotations(type):
        """Turns a class that has `NamedTuple` as its base into a namedtuple with its annotated
        names as fields."""

        def __new__(meta, name, bases, members):  # noqa: N804 - a metaclass
            if not bases:
                return type.__new__(meta, name, bases, members)
            names = list(getattr(type(name, (), dict(members)), "__annotations__", {}))
            created = namedtuple(
                name, names, defaults=[members[each] for each in names if each in members]
            )
            for each, value in members.items():
                if each not in names and each not in ("__annotations__", "__dict__", "__weakref__"):
                    setattr(created, each, value)
            return created

    class NamedTuple(metaclass=_FromAnnotations):
        pass


__all__ = ["NamedTuple", "field", "record", "replace"]
