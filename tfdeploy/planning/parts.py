"""Decides which worker gets which files of a data set with `split: worker`. Pure.

Parts are whole files, balanced by size. A file stays on its host as far as the balance allows, so a
change in the number of workers moves little data.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOBODY = -1  # the part of a file that is in no part
# A part that would exceed the mean size times this factor keeps no more of its former files.
TOLERANCE = 1.05


@dataclass(frozen=True)
class Held:
    """The files that one folder already has, with the former part of each, or NOBODY."""

    files: Sequence[int]
    parts: Sequence[int]


def parts_of(sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]) -> array[int]:
    """Return the part of each file, by file number.

    `sizes`: bytes of each file. `folders`: for each worker, the folder in which its host keeps the
    data set; workers of one host have the same folder. There must be at least as many files as
    workers.

    The largest file goes first: to the worker that has it, else to the smallest part. No part is
    larger than TOLERANCE times the mean, or than the mean plus the largest file. No part is empty.
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
        # The last files go to workers that have no file yet.
        if keeper != NOBODY and len(sizes) - placed > empty:
            stays = loads[keeper] == least or loads[keeper] + weight <= limit
            worker = keeper if stays else worker
        empty -= loads[worker] == 0
        owners[file] = worker
        loads[worker] += weight
    return owners


def _keepers(sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]) -> array[int]:
    """Return for each file the worker that would keep it, or NOBODY.

    This is the worker whose part the file was in, else a worker whose host has the file. The choice
    keeps the kept amounts about equal.
    """
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
    """Return the file's bytes, at least 1: an empty file counts too, so that no part is without
    files."""
    return max(1, size)
