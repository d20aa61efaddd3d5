"""Provide the names of `typing` that annotations of the agent use. They are never evaluated on a
host, where importing `typing` would add some 4 ms to the start of every process. For NamedTuple see
record.py."""

TYPE_CHECKING = False  # type checkers take it for True

if TYPE_CHECKING:
    from typing import (
        Any,
        BinaryIO,
        Callable,
        Collection,
        Deque,
        Dict,
        FrozenSet,
        Iterable,
        Iterator,
        List,
        Mapping,
        Optional,
        Sequence,
        Set,
        Tuple,
        Type,
        TypeVar,
        Union,
    )

    V = TypeVar("V")
else:

    class Any:
        def __class_getitem__(cls, _):
            return cls

    BinaryIO = Callable = Collection = Deque = Dict = FrozenSet = Iterable = Iterator = List = (
        Mapping
    ) = Any
    Optional = Sequence = Set = Tuple = Type = Union = V = Any

__all__ = [
    "TYPE_CHECKING",
    "Any",
    "BinaryIO",
    "Callable",
    "Collection",
    "Deque",
    "Dict",
    "FrozenSet",
    "Iterable",
    "Iterator",
    "List",
    "Mapping",
    "Optional",
    "Sequence",
    "Set",
    "Tuple",
    "Type",
    "Union",
    "V",
]
