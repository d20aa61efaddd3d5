"""Decides which worker gets which files of a data set with `split: worker`.

Each worker gets whole files, and all workers get about equally many bytes. A file stays on its host
if the balance allows it, so little data moves when the number of workers changes.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOBODY = -1  # used in place of a worker's number: the file belongs to no worker
# A worker keeps a file that it had before, unless the worker would then have more bytes than this
# factor times the mean of all workers.
TOLERANCE = 1.05


@dataclass(frozen=True)
class HeldFiles:
    """The files that a folder already has, and for each file the worker that had it before.

    The worker is NOBODY if no worker had the file.
    """

    files: Sequence[int]
    former_workers: Sequence[int]


def assign_files(
    sizes: Sequence[int], worker_folders: Sequence[str], held_by_folder: Mapping[str, HeldFiles]
) -> array[int]:
    """Return for each file the number of the worker that gets it.

    `sizes`: bytes of each file. `worker_folders`: for each worker, the folder in which its host has
    the data set; workers of one host have the same folder. There must be at least as many files as
    workers.

    Files are assigned in the order of their size, the largest first. A file goes to the worker that
    had it before, or else to the worker with the fewest bytes so far. A worker gets at most the
    mean number of bytes times TOLERANCE, or the mean plus the size of the largest file, whichever
    is more. Every worker gets at least one file.
    """
    keepers = _workers_with_file(sizes, worker_folders, held_by_folder)
    owners = array("i", [NOBODY]) * len(sizes)
    loads, empty = [0] * len(worker_folders), len(worker_folders)
    smallest = [(0, worker) for worker in range(len(worker_folders))]
    limit = TOLERANCE * sum(_bytes_at_least_one(size) for size in sizes) / len(worker_folders)
    largest_first = sorted(range(len(sizes)), key=lambda file: -_bytes_at_least_one(sizes[file]))
    for placed, file in enumerate(largest_first):
        while smallest[0][0] != loads[smallest[0][1]]:
            heapq.heapreplace(smallest, (loads[smallest[0][1]], smallest[0][1]))
        least, worker = smallest[0]
        keeper, weight = keepers[file], _bytes_at_least_one(sizes[file])
        # `empty` is the number of workers without a file. If at most this many files remain, each
        # goes to a worker without a file, even if another worker had the file before.
        if keeper != NOBODY and len(sizes) - placed > empty:
            stays = loads[keeper] == least or loads[keeper] + weight <= limit
            worker = keeper if stays else worker
        empty -= loads[worker] == 0
        owners[file] = worker
        loads[worker] += weight
    return owners


def _workers_with_file(
    sizes: Sequence[int], worker_folders: Sequence[str], held_by_folder: Mapping[str, HeldFiles]
) -> array[int]:
    """Return for each file a worker whose host already has the file, or NOBODY.

    The worker that had the file before is preferred. Otherwise, if several workers are possible,
    the worker with the fewest bytes so far is chosen.
    """
    keepers = array("i", [NOBODY]) * len(sizes)
    loads = [0] * len(worker_folders)
    by_folder: defaultdict[str, list[int]] = defaultdict(list)
    for worker, folder in enumerate(worker_folders):
        by_folder[folder].append(worker)
    present = [
        (workers, held_by_folder[folder])
        for folder, workers in by_folder.items()
        if folder in held_by_folder
    ]
    own = bytearray(len(sizes))
    for workers, held_files in present:
        for file, part in zip(held_files.files, held_files.former_workers, strict=True):
            if part in workers and not own[file]:
                keepers[file], own[file] = part, True
                loads[part] += _bytes_at_least_one(sizes[file])
    for workers, held_files in present:
        for file in held_files.files:
            worker, keeper = min(workers, key=loads.__getitem__), keepers[file]
            weight = _bytes_at_least_one(sizes[file])
            if own[file] or (keeper != NOBODY and loads[keeper] <= loads[worker] + weight):
                continue
            if keeper != NOBODY:
                loads[keeper] -= weight
            keepers[file] = worker
            loads[worker] += weight
    return keepers


def _bytes_at_least_one(size: int) -> int:
    """Return the file's size in bytes, but at least 1.

    So a worker that has only an empty file counts as a worker that has a file.
    """
    return max(1, size)
