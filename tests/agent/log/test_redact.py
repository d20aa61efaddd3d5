"""No secret leaves a task in its output, whatever pieces it comes in."""

from __future__ import annotations

import itertools

import pytest

from tfdeploy.agent.log.redact import Mask

KEYS = ["hunter2!", "hunter2!-and-more", "abab", "a line\nof a longer one", "xyz"]


def masked(pieces: list[bytes], secrets: list[str] = KEYS) -> bytes:
    mask = Mask(secrets)
    return b"".join([mask.feed(0, piece) for piece in pieces] + [mask.rest(0)])


@pytest.mark.parametrize(
    "text, shown",
    [
        (b"key=hunter2! ok", b"key=*** ok"),
        (b"hunter2!-and-more", b"***"),
        (b"hunter2!-and-less", b"***-and-less"),
        (b"ababab abab", b"***ab ***"),
        (b"of a longer one\n", b"***\n"),
        (b"xyz", b"xyz"),
        (b"hunter2", b"hunter2"),
        (b"\xff\x00hunter2!\xff", b"\xff\x00***\xff"),
    ],
)
def test_a_secret_is_masked_however_it_is_cut(text: bytes, shown: bytes) -> None:
    assert masked([text]) == shown
    assert masked([text[at : at + 1] for at in range(len(text))]) == shown
    for one, two in itertools.combinations(range(len(text)), 2):
        assert masked([text[:one], text[one:two], text[two:]]) == shown


def test_streams_do_not_mix() -> None:
    mask = Mask(KEYS)
    assert mask.feed(0, b"hunt") == b"" and mask.feed(1, b"er2!") == b"er2!"
    assert mask.feed(0, b"er2!x") == b"***x"
    assert (mask.rest(0), mask.rest(1)) == (b"", b"")


def test_without_secrets_nothing_is_touched_or_held() -> None:
    mask = Mask(["", "abc"])
    assert mask.feed(0, b"abc") == b"abc" and mask.rest(0) == b""
