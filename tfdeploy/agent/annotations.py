"""Provide the names of `typing` that the agent's annotations use. To import `typing` itself would
add about 4 ms to the start of every process on a host. record.py provides NamedTuple."""

# Type checkers treat this name as True.
TYPE_CHECKING = False

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
