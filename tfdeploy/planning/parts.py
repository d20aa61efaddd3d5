"""Decides which worker gets which files of a data set with `split: worker`.

Each worker gets whole files, and all workers about equally many bytes. A file stays on its host if
the balance allows that, so little data moves when the number of workers changes.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOBODY = -1  # in place of a worker's number: the file belongs to no worker
# A worker does not keep a file that would raise its bytes above the mean times this factor.
TOLERANCE = 1.05


@dataclass(frozen=True)
class Held:
    """The files that one folder already has, and for each its former worker, or NOBODY."""

    files: Sequence[int]
    parts: Sequence[int]


def assign_files(
    sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]
) -> array[int]:
    """Return for each file the number of the worker that gets it.

    `sizes`: bytes of each file. `folders`: for each worker, the folder in which its host has the
    data set; workers of one host have the same folder. There must be at least as many files as
    workers.

    Files are given out in the order of their size, the largest first: to the worker that had the
    file, else to the worker with the fewest bytes. A worker gets at most TOLERANCE times the mean,
    or the mean plus the largest file, whichever is more. Every worker gets a file.
    """
    keepers = _keepers(sizes, folders, held)
    owners = array("i", [NOBODY]) * len(sizes)
    loads, empty = [0] * len(folders), len(folders)
    smallest = [(0, worker) for worker in range(len(folders))]
    limit = TOLERANCE * sum(_weight(size) for size in sizes) / len(folders)
    largest_first = sorted(range(len(sizes)), key=lambda file: -_weight(sizes[file]))
    for placed, file in enumerate(largest_first):
        while smallest[0][0] != loads[smallest[0][1]]:
            heapq.heapreplace(smallest, (loads[smallest[0][1]], smallest[0][1]))
        least, worker = smallest[0]
        keeper, weight = keepers[file], _weight(sizes[file])
        # Enough files must remain for workers that have none yet, so the last files are not kept.
        if keeper != NOBODY and len(sizes) - placed > empty:
            stays = loads[keeper] == least or loads[keeper] + weight <= limit
            worker = keeper if stays else worker
        empty -= loads[worker] == 0
        owners[file] = worker
        loads[worker] += weight
    return owners


def _keepers(sizes: Sequence[int], folders: Sequence[str], held: Mapping[str, Held]) -> array[int]:
    """Return for each file the worker for which no data would have to move, or NOBODY.

    It is the worker that had the file before, else a worker whose host has the file. Of several
    such workers, the one with the fewest bytes so far is chosen.
    """
    keepers = array("i", [NOBODY]) * len(sizes)
    loads = [0] * len(folders)
    by_folder: defaultdict[str, list[int]] = defaultdict(list)
    for worker, folder in enumerate(folders):
        by_folder[folder].append(worker)
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
    """Return the file's bytes, at least 1, so that a worker with an empty file counts as having
    one."""
    return max(1, size)
