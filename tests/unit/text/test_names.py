"""Test that a range such as n[1-3] expands to names, that names are merged into ranges, and that
the size of a range is limited.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.errors import UsageError
from tfdeploy.text.names import expand_ranges, fold_names, split_outside_brackets

UNFOLDED = {
    "n1": "n1",
    "n[1-3]": "n1 n2 n3",
    "n[01-03]": "n01 n02 n03",
    "n[08-11]": "n08 n09 n10 n11",
    "n[8-11]": "n8 n9 n10 n11",
    "n[5]": "n5",
    "n[1-2,7,09-10]x": "n1x n2x n7x n09x n10x",
    "r[1-2]n[1-2]": "r1n1 r1n2 r2n1 r2n2",
    "n[0-0]": "n0",
}


@pytest.mark.parametrize(("text", "names"), UNFOLDED.items())
def test_range_unfolds_to_names(text, names):
    assert expand_ranges(text) == tuple(names.split())


@pytest.mark.parametrize(
    "text",
    [
        "n[",
        "n]",
        "n[]",
        "n[1-]",
        "n[-1]",
        "n[1--2]",
        "n[3-1]",
        "n[1-016]",
        "n[[1-2]]",
        "n[a-b]",
        "n[1.5]",
        "n[²-³]",
        "n[1-2",
    ],
)
def test_malformed_range_is_refused(text):
    with pytest.raises(UsageError) as caught:
        expand_ranges(text)
    assert repr(text) in caught.value.what
    assert caught.value.next


@pytest.mark.parametrize(
    "text",
    [
        "n[1-1000000]",
        "n[1-999999999]",
        "[1-101][1-100]",
        "n[1-9999,1-9999]",
        "[0-9]" * 60,
        "[0-9]" * 9000,
    ],
)
def test_too_large_range_is_refused_before_unfolding(text):
    with pytest.raises(UsageError, match="at most 10,000"):
        expand_ranges(text)


def test_endless_digits_are_refused():
    with pytest.raises(UsageError, match="is not a range"):
        expand_ranges(f"n[{'1' * 10_000}]")


@given(st.integers(0, 9000), st.integers(0, 900), st.integers(1, 6))
def test_range_counts_up_with_constant_width(low, length, width):
    names = expand_ranges(f"a[{low:0{width}}-{low + length:0{width}}]b")
    assert len(names) == length + 1
    assert [int(name[1:-1]) for name in names] == list(range(low, low + length + 1))
    assert all(len(name) >= width + 2 for name in names)


NAMES = st.from_regex(r"[a-c]{0,2}(0{0,2}[0-9]{1,3})?[a-c]?", fullmatch=True).filter(bool)


@given(st.lists(NAMES, unique=True, max_size=30))
def test_folded_names_unfold_to_same_names(names):
    unfolded = [
        name for part in split_outside_brackets(fold_names(names)) for name in expand_ranges(part)
    ]
    assert sorted(unfolded) == sorted(names)


def test_lists_are_split_outside_brackets():
    assert split_outside_brackets("n1, gpu[03-10,12],,w*") == ("n1", "gpu[03-10,12]", "w*")
