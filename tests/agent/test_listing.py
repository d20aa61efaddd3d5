"""Test the listing of a data set. The control machine and the host compute the same rows for any
files. A row that names a path outside the folder is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import listing
from tfdeploy.agent.listing import FILE, FOLDER, LINK, NOT_LINKED, Listing, Row


def row(path: bytes, kind: str, **more: Any) -> Row:
    plain = {
        "size": 0,
        "mtime_ns": 0,
        "mode": 0o755,
        "target": b"",
        "same_as": NOT_LINKED,
        "allocated": 0,
    }
    return Row(path=path, kind=kind, **{**plain, **more})


def file(path: bytes, size: int = 1, at: int = 5_000_000_000, same_as: int = NOT_LINKED) -> Row:
    return row(path, FILE, size=size, mtime_ns=at, same_as=same_as, allocated=size)


def folder(path: bytes) -> Row:
    return row(path, FOLDER)


def listed(*rows: Row) -> Listing:
    made = Listing()
    for row in rows:
        made.add(row)
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    (root / "a").mkdir(parents=True)
    (root / "a.b").write_bytes(b"12")
    (root / "a" / "x").write_bytes(b"123")
    (root / "a" / "y").hardlink_to(root / "a" / "x")
    (root / "-dash\nline").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(root) + b"/latin-\xe9")).write_bytes(b"1")
    (root / "link").symlink_to("nowhere")
    (root / "empty").mkdir(mode=0o700)
    with (root / "sparse").open("wb") as stream:
        stream.truncate(1 << 20)
    return root


def test_a_walk_has_everything_in_one_order(tree: Path) -> None:
    found = listing.walk(str(tree))
    rows = list(found)
    assert [row.path for row in rows] == [
        *(b"", b"-dash\nline", b"a", b"a/x", b"a/y", b"a.b"),
        *(b"empty", b"latin-\xe9", b"link", b"sparse"),
    ]
    assert rows[4].same_as == 3 and not found.has_own_content(4) and found.has_own_content(3)
    assert (rows[8].kind, rows[8].target) == (LINK, b"nowhere")
    assert found.is_sparse(9) and found.allocated(9) == 0 and not found.is_sparse(5)
    assert (found.files, found.total_bytes) == (6, 3 + 2 + 1 + (1 << 20))


def test_packed_and_unpacked_it_is_the_same(tree: Path) -> None:
    found = listing.walk(str(tree))
    again = listing.unpack(found.pack())
    assert list(again) == list(found)
    assert (again.digest(), again.attributes_digest(), again.files, again.total_bytes) == (
        *(found.digest(), found.attributes_digest()),
        *(found.files, found.total_bytes),
    )


def test_modes_and_folders_change_the_attributes_alone(tree: Path) -> None:
    before = listing.walk(str(tree))
    (tree / "a.b").chmod(0o600)
    (tree / "more").mkdir()
    after = listing.walk(str(tree))
    assert (
        before.digest() == after.digest()
        and before.attributes_digest() != after.attributes_digest()
    )


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(listing.SpecialFile) as caught:
        listing.walk(str(tmp_path))
    assert caught.value.filename == str(tmp_path / "pipe")


@pytest.mark.parametrize(
    "rows",
    [
        (folder(b""), file(b"../x")),
        (folder(b""), file(b"/etc/passwd")),
        (folder(b""), file(b"a\0b")),
        (folder(b""), file(b"a/./b")),
        (folder(b""), file(b"a/b")),  # there is no row for the folder `a`
        (folder(b""), row(b"a", LINK, target=b"/etc"), file(b"a/passwd")),
        (folder(b""), file(b"b"), file(b"a")),
        (folder(b""), file(b"a"), file(b"a")),
        (folder(b""), file(b"a", same_as=1)),
        (folder(b""), file(b"a", same_as=0)),
        (folder(b""), folder(b"")),
    ],
)
def test_a_listing_that_leads_out_or_is_out_of_order_is_refused(rows: tuple[Row, ...]) -> None:
    with pytest.raises(listing.BadListing):
        listing.unpack(listed(*rows).pack())


@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_listing(content: bytes) -> None:
    for packed in (
        content,
        listed(folder(b""), file(b"a")).pack()[: len(content)],
        b"listing1" + content,
    ):
        with pytest.raises(listing.BadListing):
            listing.unpack(packed)


names = st.lists(st.sampled_from([b"a", b"b", b"a.b", b"a-", b"\xff"]), min_size=1, max_size=3).map(
    b"/".join
)


@given(st.sets(names), st.sets(names))
def test_pairs_are_a_merge_in_the_order_of_walk(ours: set[bytes], theirs: set[bytes]) -> None:
    one, other = (
        listed(*map(file, sorted(paths, key=listing.sort_key))) for paths in (ours, theirs)
    )
    pairs_found = list(listing.match_rows(one, other))
    paths = [one.path(i) if i is not None else other.path(j or 0) for i, j in pairs_found]
    assert paths == sorted(ours | theirs, key=listing.sort_key)
    both = {one.path(i) for i, j in pairs_found if i is not None and j is not None}
    assert both == ours & theirs


def test_files_are_the_same_as_rsync_takes_them() -> None:
    assert listing.is_same_file(file(b"a", 3, 5_100_000_000), file(b"a", 3, 5_900_000_000))
    assert not listing.is_same_file(file(b"a", 3, 5_900_000_000), file(b"a", 3, 6_000_000_000))
    assert not listing.is_same_file(file(b"a", 3), file(b"a", 4))
    assert not listing.is_same_file(file(b"a", 0), folder(b"a"))
