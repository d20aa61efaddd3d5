"""Provide the names from `typing` that the agent's annotations use (except NamedTuple, which
record.py provides), without importing `typing`. The import would add about 4 ms to the start of
every process on a host."""

# Type checkers assume that a variable with this name is True, so only they see the imports below.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any as Any
    from typing import BinaryIO as BinaryIO
    from typing import Callable as Callable
    from typing import Collection as Collection
    from typing import Deque as Deque
    from typing import Dict as Dict
    from typing import FrozenSet as FrozenSet
    from typing import Iterable as Iterable
    from typing import Iterator as Iterator
    from typing import List as List
    from typing import Mapping as Mapping
    from typing import Optional as Optional
    from typing import Sequence as Sequence
    from typing import Set as Set
    from typing import Tuple as Tuple
    from typing import Type as Type
    from typing import TypeVar as TypeVar
    from typing import Union as Union

    V = TypeVar("V")
else:

    class Any:
        def __class_getitem__(cls, _):
            return cls

    BinaryIO = Callable = Collection = Deque = Dict = FrozenSet = Iterable = Iterator = List = (
        Mapping
    ) = Any
    Optional = Sequence = Set = Tuple = Type = Union = V = Any
