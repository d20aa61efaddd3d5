"""Which worker gets which files of a data set with `split: worker`. Pure.

Parts are whole files, balanced by size. A file stays where it is as far as the balance allows, so
that little moves when the number of workers changes.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOBODY = -1  # of a file that is in no part
TOLERANCE = 1.05  # of the mean: a part that would become larger keeps no more of its files


@dataclass(frozen=True)
class Held:
    """The files that one folder has already, and the part in which each of them was, or NOBODY."""

    files: Sequence[int]
    parts: Sequence[int]


def parts_of(sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]) -> array[int]:
    """The part of each file, by its number.

    `sizes`: bytes of each file. `folders`: for each worker, the folder that its host keeps the data
    set in; workers of one host have the same. There are at least as many files as workers.

    The largest file goes first: to the worker that has it, else to the smallest part. No part is
    larger than TOLERANCE times the mean, or the mean and the largest file together. None is empty.
    """
    keepers = _keepers(sizes, folders, held)
    owners = array("i", [NOBODY]) * len(sizes)
    loads, empty = [0] * len(folders), len(folders)
    smallest = [(0, worker) for worker in range(len(folders))]
    limit = TOLERANCE * sum(_weight(size) for size in sizes) / len(folders)
    for placed, file in enumerate(
        sorted(range(len(sizes)), key=lambda file: -_weight(sizes[file]))
    ):
        while smallest[0][0] != loads[smallest[0][1]]:
            heapq.heapreplace(smallest, (loads[smallest[0][1]], smallest[0][1]))
        least, worker = smallest[0]
        keeper, weight = keepers[file], _weight(sizes[file])
        # The last files go to the workers that have none.
        if keeper != NOBODY and len(sizes) - placed > empty:
            stays = loads[keeper] == least or loads[keeper] + weight <= limit
            worker = keeper if stays else worker
        empty -= loads[worker] == 0
        owners[file] = worker
        loads[worker] += weight
    return owners


def _keepers(sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]) -> array[int]:
    """For each file the worker that would keep it: the one whose part it was, else one whose host
    has it, so that each would keep about the same; or NOBODY."""
    keepers = array("i", [NOBODY]) * len(sizes)
    loads = [0] * len(folders)
    by_folder: dict[str, list[int]] = {}
    for worker, folder in enumerate(folders):
        by_folder.setdefault(folder, []).append(worker)
    present = [(workers, held[folder]) for folder, workers in by_folder.items() if folder in held]
    own = bytearray(len(sizes))
    for workers, held_files in present:
        for file, part in zip(held_files.files, held_files.parts, strict=True):
            if part in workers and not own[file]:
                keepers[file], own[file] = part, True
                loads[part] += _weight(sizes[file])
    for workers, held_files in present:
        for file in held_files.files:
            worker, keeper = min(workers, key=loads.__getitem__), keepers[file]
            weight = _weight(sizes[file])
            if own[file] or (keeper != NOBODY and loads[keeper] <= loads[worker] + weight):
                continue
            if keeper != NOBODY:
                loads[keeper] -= weight
            keepers[file] = worker
            loads[worker] += weight
    return keepers


def _weight(size: int) -> int:
    """An empty file counts too: no part is without files."""
    return max(1, size)
