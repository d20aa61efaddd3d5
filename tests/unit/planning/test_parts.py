"""Test how a data set is divided among hosts: in parts of similar size that change little when
workers come or go.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.planning.parts import NOBODY, Held, parts_of

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=200)


def hosts(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def loads(sizes: Sequence[int], owners: Sequence[int], count: int) -> list[int]:
    return [
        sum(size for size, owner in zip(sizes, owners, strict=True) if owner == part)
        for part in range(count)
    ]


def is_balanced(sizes: Sequence[int], owners: Sequence[int], count: int) -> bool:
    sizes = [max(1, size) for size in sizes]
    return max(loads(sizes, owners, count)) <= 1.1 * sum(sizes) / count + max(sizes)


def holding(owners: Sequence[int], folders: Sequence[str]) -> dict[str, Held]:
    """Return which files and parts each host has after it has received these parts."""
    held_by_folder: dict[str, tuple[list[int], list[int]]] = {
        folder: ([], []) for folder in folders
    }
    for file, part in enumerate(owners):
        held_by_folder[folders[part]][0].append(file)
        held_by_folder[folders[part]][1].append(part)
    return {folder: Held(*each) for folder, each in held_by_folder.items()}


def moved(
    sizes: Sequence[int], owners: Sequence[int], folders: Sequence[str], held: dict[str, Held]
) -> int:
    """Return how many bytes the hosts have to receive."""
    has = {folder: set(each.files) for folder, each in held.items()}
    return sum(
        size for file, size in enumerate(sizes) if file not in has.get(folders[owners[file]], ())
    )


@given(SIZES, st.integers(1, 40))
def test_whatever_the_files_are_the_parts_are_balanced_and_none_is_empty(
    sizes: list[int], count: int
) -> None:
    count = min(count, len(sizes))
    owners = parts_of(sizes, hosts(count), {})
    assert set(owners) == set(range(count))
    assert is_balanced(sizes, owners, count)


@given(SIZES, st.data())
def test_whoever_held_what_the_parts_are_balanced_and_none_is_empty(
    sizes: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, min(12, len(sizes))))
    folders = [f"n{data.draw(st.integers(0, count))}" for _ in range(count)]
    held = {}
    for folder in {*folders, "gone"}:
        files = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
        held[folder] = Held(files, [data.draw(st.integers(NOBODY, count)) for _ in files])
    owners = parts_of(sizes, folders, held)
    assert set(owners) == set(range(count))
    assert is_balanced(sizes, owners, count)


@given(SIZES, st.integers(1, 12))
def test_the_same_workers_again_move_nothing(sizes: list[int], count: int) -> None:
    count = min(count, len(sizes))
    folders = [f"n{worker // 2}" for worker in range(count)]
    owners = parts_of(sizes, folders, {})
    assert parts_of(sizes, folders, holding(owners, folders)) == owners


@pytest.mark.parametrize(("before", "after"), [(8, 6), (6, 8), (8, 7), (4, 16)])
def test_other_numbers_of_workers_move_little_more_than_the_least(before: int, after: int) -> None:
    sizes = [1000 + 37 * (number % 11) for number in range(4000)]
    folders = hosts(max(before, after))
    first = parts_of(sizes, folders[:before], {})
    held = holding(first, folders[:before])
    second = parts_of(sizes, folders[:after], held)
    assert is_balanced(sizes, second, after)
    least = sum(sizes) * (1 - min(before, after) / max(before, after))
    assert moved(sizes, second, folders, held) <= 1.2 * least


def test_a_host_that_is_left_out_moves_its_own_files_alone() -> None:
    sizes, before = [1000] * 800, hosts(8)
    held = holding(parts_of(sizes, before, {}), before)
    after = [folder for folder in before if folder not in ("n2", "n5")]
    assert moved(sizes, parts_of(sizes, after, held), after, held) <= 1.2 * 200_000


def test_hosts_that_have_all_of_it_move_nothing() -> None:
    sizes, folders = [10 + number for number in range(600)], hosts(5)
    everything = Held(range(600), [NOBODY] * 600)
    held = dict.fromkeys(folders, everything)
    owners = parts_of(sizes, folders, held)
    assert moved(sizes, owners, folders, held) == 0
    assert is_balanced(sizes, owners, 5)


def test_one_huge_file_leaves_the_others_to_the_others() -> None:
    sizes = [10_000, *[10] * 30]
    bytes_by_part = loads(sizes, parts_of(sizes, hosts(4), {}), 4)
    assert sorted(bytes_by_part) == [100, 100, 100, 10_000]


def test_a_million_files_are_shared_out() -> None:
    sizes = array("Q", [1 + number % 5000 for number in range(1_000_000)])
    owners = parts_of(sizes, hosts(8), {})
    assert is_balanced(sizes, owners, 8)
