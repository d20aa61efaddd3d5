"""Test that secrets are masked in a task's output, in whatever pieces the output arrives, and in
whatever form the program prints a secret.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import shlex
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent.log import unseen
from tfdeploy.agent.log.redact import MOST_HELD, SecretMask
from tfdeploy.agent.log.secret_forms import printed_forms

KEYS = ["hunter2!", "hunter2!-and-more", "abab", "a line\nof a longer one", "xyz"]
AWKWARD = "p&s/w+rd? <\"it's\\é>\t~ end"
PEM = (
    "-----BEGIN "
    "KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nq83vEjRWeJCrze8SNFZ4kKvN7w\nshort\n-----END KEY-----\n"
)


def masked(pieces: list[bytes], secrets: list[str] = KEYS) -> bytes:
    mask = SecretMask(secrets)
    return b"".join([mask.mask_chunk(0, piece) for piece in pieces] + [mask.mask_held_back(0)])


@pytest.mark.parametrize(
    "text, shown",
    [
        (b"key=hunter2! ok", b"key=*** ok"),
        (b"hunter2!-and-more", b"***"),
        (b"hunter2!-and-less", b"***-and-less"),
        (b"ababab abab", b"*** ***"),
        (b"abababababab.", b"***."),
        (b"hunter2!-and-morehunter2!", b"******"),
        (b"of a longer one\n", b"***\n"),
        (b"a line", b"a line"),
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


@given(
    st.lists(st.text("ab", min_size=4, max_size=7), min_size=1, max_size=4),
    st.lists(st.binary(max_size=9)),
    st.data(),
)
def test_cuts_change_nothing_and_no_form_remains(
    secrets: list[str], noise: list[bytes], data: st.DataObject
) -> None:
    pieces = [
        *(piece.translate(bytes(b"ab."[value % 3] for value in range(256))) for piece in noise)
    ]
    pieces += [form for form in printed_forms(secrets) if data.draw(st.booleans())]
    pieces = data.draw(st.permutations(pieces))
    whole = b"".join(pieces)
    shown = masked([whole], secrets)
    assert masked(pieces, secrets) == shown and not any(
        form in shown for form in printed_forms(secrets)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    assert (
        masked([whole[a:b] for a, b in itertools.pairwise([0, *cuts, len(whole)])], secrets)
        == shown
    )


def test_what_is_held_is_never_longer_than_the_longest_form() -> None:
    mask, longest = SecretMask(["abab"]), len(printed_forms(["abab"])[0])
    out = b"".join(mask.mask_chunk(0, b"ab") for _ in range(1000)) + mask.mask_held_back(0)
    assert out == b"***"
    for _ in range(1000):
        mask.mask_chunk(1, b"ab")
        assert len(mask._held.get(1, (b"", 0))[0]) < longest


def in_base64(text: str, before: int, altchars: bytes | None = None) -> bytes:
    return base64.b64encode(b"user:"[:before] + text.encode() + b"\nrest", altchars)


@pytest.mark.parametrize(
    "secret", [AWKWARD, "hf_0123456789abcdefXYZ", "\x00\xff>?~ÿ>?~".replace("\x00", "é")]
)
def test_encoded_forms_are_masked(secret: str) -> None:
    """At each end of the secret, one base64 character may stay visible. This character encodes
    fewer than 6 bits of the secret, because its other bits belong to the neighbouring text.
    """
    quoted = urllib.parse.quote(secret, safe="")
    whole = [
        urllib.parse.quote(secret),
        quoted,
        re.sub("%..", lambda given: given[0].lower(), quoted),
        urllib.parse.quote_plus(secret),
        urllib.parse.quote(secret, safe="!'()*"),
        "".join(f"%{byte:02x}" for byte in secret.encode()),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(secret).replace("/", "\\/")[1:-1],
        json.dumps(json.dumps(secret))[3:-3],
        repr(secret)[1:-1],
        repr(secret.encode())[2:-1],
        repr(secret + "'\"")[1:-4],
        shlex.quote("'" + secret)[6:-1],
    ]
    for form in whole:
        assert masked([b"<" + form.encode() + b">"], [secret]) == b"<***>", form
    for before in range(6):
        for altchars in (None, b"-_"):
            left = masked([in_base64(secret, before, altchars)], [secret])
            hidden = len(in_base64(secret, before, altchars)) - len(left) + len(b"***")
            assert b"***" in left and hidden >= len(secret.encode()) * 8 // 6 - 1, (before, left)


def test_each_line_of_a_key_is_masked_in_all_forms() -> None:
    for line in PEM.splitlines():
        hidden = len(line) >= 8
        assert (masked([b"| " + line.encode() + b" |"], [PEM]) == b"| *** |") == hidden
        assert (b"***" in masked([base64.b64encode(b"> " + line.encode())], [PEM])) == hidden
    assert masked([json.dumps(PEM).encode()], [PEM]) == b'"***"'


def test_streams_do_not_mix() -> None:
    mask = SecretMask(KEYS)
    assert mask.mask_chunk(0, b"hunt") == b"" and mask.mask_chunk(1, b"er2!") == b"er2!"
    assert mask.mask_chunk(0, b"er2!x") == b"***x"
    assert (mask.mask_held_back(0), mask.mask_held_back(1)) == (b"", b"")


def test_without_secrets_nothing_is_touched_or_held() -> None:
    mask = SecretMask(["", "abc"])
    assert mask.mask_chunk(0, b"abc") == b"abc" and mask.mask_held_back(0) == b""


COLOURED = "S3C\x1b[1;31mRET\x1b]8;;http://x\x07VALUE\x1b[0m9"
INVISIBLE = [
    "\x1b[31m",
    "\x1b[0;1;32m",
    "\x1b]0;title\x07",
    "\x1b(B",
    "\x08",
    "\x7f",
    "\x9b1m",
    "\u200b",
    "\u00ad",
    "\ue000",
    "\U000e0041",
]


@pytest.mark.parametrize("between", INVISIBLE)
def test_a_secret_is_masked_over_what_a_terminal_does_not_show(between: str) -> None:
    text = (
        f"a {between}".encode() + between.join("S3CRETVALUE9").encode() + f"{between} z\n".encode()
    )
    shown = masked([text], ["S3CRETVALUE9"])
    assert shown == f"a {between}***{between} z\n".encode()
    assert masked([text[at : at + 1] for at in range(len(text))], ["S3CRETVALUE9"]) == shown
    for size in (2, 3, 5, 7):
        assert (
            masked([text[at : at + size] for at in range(0, len(text), size)], ["S3CRETVALUE9"])
            == shown
        )


def test_a_coloured_secret_and_one_that_holds_colours_itself(secret: str = "S3CRETVALUE9") -> None:
    assert (
        masked([COLOURED.encode()], [secret]) == b"***" == masked([COLOURED.encode()], [COLOURED])
    )
    assert masked([b"S3CRET", b"VALUE9"], [COLOURED]) == b"***"
    encoded = base64.b64encode(secret.encode()).decode()
    assert masked([f"{encoded[:4]}\x1b[32m{encoded[4:]}".encode()], [secret]) == b"***"


@given(
    st.lists(
        st.sampled_from(["\x1b[3", "\x1b[31m", "\u200b", "\xc2", "abab", "ab", "x", "\n"]),
        max_size=12,
    ),
    st.data(),
)
def test_what_is_seen_never_holds_a_secret_however_it_is_cut(
    pieces: list[str], data: st.DataObject
) -> None:
    whole = b"".join(piece.encode("latin-1" if piece == "\xc2" else "utf-8") for piece in pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    for parts in ([whole], [whole[a:b] for a, b in itertools.pairwise([0, *cuts, len(whole)])]):
        shown = masked(parts, ["abab"])
        assert b"abab" not in unseen.strip_invisible(shown) and b"abab" not in shown


def test_colours_without_end_are_not_held_back() -> None:
    mask, written = SecretMask(["abab"]), 0
    for _ in range(200):
        written += len(mask.mask_chunk(0, b"a" + b"\x1b[31m" * 200))
    assert written > 200 * 1000 - 2 * MOST_HELD and b"abab" not in mask.mask_held_back(0)
