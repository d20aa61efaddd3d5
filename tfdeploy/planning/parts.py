"""Which worker gets which files of a data set with `split: worker`. Pure.

Parts are whole files, balanced by size. A file stays where it is as far as the balance allows, so that little moves when the
number of workers changes.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

NOBODY = -1  # of a file that is in no part
TOLERANCE = 1.05  # of the mean: a part that is larger gives files away


@dataclass(frozen=True)
class Held:
    """The files that one folder has already, and the part in which each of them was, or NOBODY."""

    files: Sequence[int]
    parts: Sequence[int]


def parts_of(sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]) -> array[int]:
    """The part of each file, by its number. `sizes`: bytes of each file; `folders`: for each worker, the folder that its host
    keeps the data set in: workers of one host have the same. There are at least as many files as workers.

    No part is larger than TOLERANCE times the mean and the largest file together, and none is empty.
    """
    sharing = _Sharing(sizes, folders)
    sharing.leave(held)
    sharing.give_out()
    sharing.balance()
    return sharing.owners


@dataclass
class _Sharing:
    sizes: Sequence[int]
    folders: Sequence[str]
    owners: array[int] = field(init=False)
    _loads: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.owners = array("i", [NOBODY]) * len(self.sizes)
        self._loads = [0] * len(self.folders)

    def _weight(self, file: int) -> int:
        return max(1, self.sizes[file])

    def _give(self, file: int, worker: int) -> None:
        if self.owners[file] != NOBODY:
            self._loads[self.owners[file]] -= self._weight(file)
        self.owners[file] = worker
        self._loads[worker] += self._weight(file)

    def leave(self, held: Mapping[str, Held]) -> None:
        """Files that a worker's host has: to that worker."""
        exact = bytearray(len(self.sizes))
        by_folder: dict[str, list[int]] = {}
        for worker, folder in enumerate(self.folders):
            by_folder.setdefault(folder, []).append(worker)
        here = [(workers, held[folder]) for folder, workers in by_folder.items() if folder in held]
        for workers, found in here:
            for file, part in zip(found.files, found.parts, strict=True):
                if part in workers:
                    self._give(file, part)
                    exact[file] = True
        for workers, found in here:
            for file in found.files:
                if not exact[file]:
                    self._take(file, min(workers, key=self._loads.__getitem__))

    def _take(self, file: int, worker: int) -> None:
        """From another host that has it too, where that has more."""
        owner = self.owners[file]
        if owner == NOBODY or self._loads[owner] > self._loads[worker] + self._weight(file):
            self._give(file, worker)

    def give_out(self) -> None:
        """The files that no worker's host has, the largest first, each to the smallest part."""
        smallest = [(load, worker) for worker, load in enumerate(self._loads)]
        heapq.heapify(smallest)
        left = [file for file, owner in enumerate(self.owners) if owner == NOBODY]
        for file in sorted(left, key=lambda file: -self._weight(file)):
            _, worker = smallest[0]
            self._give(file, worker)
            heapq.heapreplace(smallest, (self._loads[worker], worker))

    def balance(self) -> None:
        """From parts that are too large to those that are smallest, as few bytes as possible."""
        mean = sum(self._loads) / len(self._loads)
        for giver in sorted(range(len(self._loads)), key=lambda worker: -self._loads[worker]):
            self._lower(giver, mean)

    def _lower(self, giver: int, mean: float) -> None:
        files: list[int] | None = None
        smallest = [(load, worker) for worker, load in enumerate(self._loads) if worker != giver]
        heapq.heapify(smallest)
        while smallest:
            least, taker = smallest[0]
            load = self._loads[giver]
            if load <= TOLERANCE * mean and least:
                return
            files = self._files_of(giver) if files is None else files
            at = self._best(files, min(load - mean, mean - least), load - least)
            if at is None:
                return
            self._give(files.pop(at), taker)
            heapq.heapreplace(smallest, (self._loads[taker], taker))

    def _best(self, files: list[int], wanted: float, less_than: int) -> int | None:
        """The place of the largest file of at most `wanted` bytes, else of the smallest of fewer than `less_than`."""
        if len(files) < 2:
            return None
        at = max(0, bisect_right(files, wanted, key=self._weight) - 1)
        return at if self._weight(files[at]) < less_than else None

    def _files_of(self, worker: int) -> list[int]:
        """By size."""
        mine: Iterable[int] = (file for file, owner in enumerate(self.owners) if owner == worker)
        return sorted(mine, key=self._weight)
