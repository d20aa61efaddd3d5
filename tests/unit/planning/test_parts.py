"""Test how a data set is divided among hosts. The parts have similar sizes, and change little when
workers are added or removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.planning.parts import NOBODY, HeldFiles, assign_files

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=200)


def hosts(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def bytes_by_part_of(sizes: Sequence[int], owners: Sequence[int], count: int) -> list[int]:
    return [
        sum(size for size, owner in zip(sizes, owners, strict=True) if owner == part)
        for part in range(count)
    ]


def is_balanced(sizes: Sequence[int], owners: Sequence[int], count: int) -> bool:
    sizes = [max(1, size) for size in sizes]
    return max(bytes_by_part_of(sizes, owners, count)) <= 1.1 * sum(sizes) / count + max(sizes)


def files_after(owners: Sequence[int], folders: Sequence[str]) -> dict[str, HeldFiles]:
    """Return the files and the parts that each folder contains after the transfer.

    `owners[file]` is the number of the file's part. `folders[part]` is the folder of the part.
    """
    held_by_folder: dict[str, tuple[list[int], list[int]]] = {
        folder: ([], []) for folder in folders
    }
    for file, part in enumerate(owners):
        held_by_folder[folders[part]][0].append(file)
        held_by_folder[folders[part]][1].append(part)
    return {folder: HeldFiles(*folder_content) for folder, folder_content in held_by_folder.items()}


def count_moved_bytes(
    sizes: Sequence[int],
    owners: Sequence[int],
    folders: Sequence[str],
    held_by_folder: dict[str, HeldFiles],
) -> int:
    """Return how many bytes all hosts together have to receive."""
    files_by_folder = {
        folder: set(held_folder.files) for folder, held_folder in held_by_folder.items()
    }
    return sum(
        size
        for file, size in enumerate(sizes)
        if file not in files_by_folder.get(folders[owners[file]], ())
    )


@given(SIZES, st.integers(1, 40))
def test_parts_of_any_files_are_balanced_and_not_empty(sizes: list[int], count: int) -> None:
    count = min(count, len(sizes))
    owners = assign_files(sizes, hosts(count), {})
    assert set(owners) == set(range(count))
    assert is_balanced(sizes, owners, count)


@given(SIZES, st.data())
def test_parts_are_balanced_and_not_empty_whatever_hosts_have(
    sizes: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, min(12, len(sizes))))
    folders = [f"n{data.draw(st.integers(0, count))}" for _ in range(count)]
    held_by_folder = {}
    for folder in {*folders, "gone"}:
        files = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
        held_by_folder[folder] = HeldFiles(
            files, [data.draw(st.integers(NOBODY, count)) for _ in files]
        )
    owners = assign_files(sizes, folders, held_by_folder)
    assert set(owners) == set(range(count))
    assert is_balanced(sizes, owners, count)


@given(SIZES, st.integers(1, 12))
def test_same_workers_move_nothing(sizes: list[int], count: int) -> None:
    count = min(count, len(sizes))
    folders = [f"n{worker // 2}" for worker in range(count)]
    owners = assign_files(sizes, folders, {})
    assert assign_files(sizes, folders, files_after(owners, folders)) == owners


@pytest.mark.parametrize(("before", "after"), [(8, 6), (6, 8), (8, 7), (4, 16)])
def test_other_number_of_workers_moves_little_more_than_minimum(before: int, after: int) -> None:
    sizes = [1000 + 37 * (number % 11) for number in range(4000)]
    folders = hosts(max(before, after))
    first = assign_files(sizes, folders[:before], {})
    held_by_folder = files_after(first, folders[:before])
    second = assign_files(sizes, folders[:after], held_by_folder)
    assert is_balanced(sizes, second, after)
    least = sum(sizes) * (1 - min(before, after) / max(before, after))
    assert count_moved_bytes(sizes, second, folders, held_by_folder) <= 1.2 * least


def test_removed_host_moves_only_its_own_files() -> None:
    sizes, before = [1000] * 800, hosts(8)
    held_by_folder = files_after(assign_files(sizes, before, {}), before)
    after = [folder for folder in before if folder not in ("n2", "n5")]
    assert (
        count_moved_bytes(sizes, assign_files(sizes, after, held_by_folder), after, held_by_folder)
        <= 1.2 * 200_000
    )


def test_hosts_with_whole_data_set_move_nothing() -> None:
    sizes, folders = [10 + number for number in range(600)], hosts(5)
    everything = HeldFiles(range(600), [NOBODY] * 600)
    held_by_folder = dict.fromkeys(folders, everything)
    owners = assign_files(sizes, folders, held_by_folder)
    assert count_moved_bytes(sizes, owners, folders, held_by_folder) == 0
    assert is_balanced(sizes, owners, 5)


def test_host_with_huge_file_gets_no_other_file() -> None:
    sizes = [10_000, *[10] * 30]
    bytes_by_part = bytes_by_part_of(sizes, assign_files(sizes, hosts(4), {}), 4)
    assert sorted(bytes_by_part) == [100, 100, 100, 10_000]


def test_million_files_are_divided() -> None:
    sizes = array("Q", [1 + number % 5000 for number in range(1_000_000)])
    owners = assign_files(sizes, hosts(8), {})
    assert is_balanced(sizes, owners, 8)
