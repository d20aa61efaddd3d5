"""Test that no control byte from a program or a host reaches a terminal.

The tests use a table of known attacks, and check properties that must be true for any text.
"""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent.log import unseen
from tfdeploy.ui.sanitise import LIMIT, clean, is_printable_ascii

TABLE = {
    "plain": ("step 1 loss 0.5", "step 1 loss 0.5"),
    "markup is text": (
        "[/foo] [bold red]x[/] [link=http://x]",
        "[/foo] [bold red]x[/] [link=http://x]",
    ),
    "colour": ("\x1b[1;31mred\x1b[0m", "red"),
    "8-bit CSI": ("\x9b31mred", "red"),
    "clear screen": ("a\x1b[2J\x1b[Hb", "ab"),
    "title": ("\x1b]0;owned\x07text", "text"),
    "clipboard": ("\x1b]52;c;cm0gLXJm\x1b\\text", "text"),
    "8-bit OSC": ("\x9d52;c;xx\x9ctext", "text"),
    "an OSC without end hides nothing": ("\x1b]52;c;text", "52;c;text"),
    "DCS": ("\x1bPq#0\x1b\\text", "text"),
    "a sequence made by removing another": ("\x1b\x1b[0m[31mred", "[31mred"),
    "other escapes": ("\x1b(0\x1bc\x1b7x", "x"),
    "NUL and bells": ("a\x00b\x07\x08c\x7f", "abc"),
    "C1": ("a\x85b\x84c", "abc"),
    "bar": (" 1/10\r 2/10\r", " 2/10"),
    "keras": ("\x08\x08\x08\r 5/10 [==>..] loss: 0.5\x08\x08", " 5/10 [==>..] loss: 0.5"),
    "tab": ("a\tb", "a       b"),
    "newline": ("a\nb", "a b"),
    "bidi": ("a\u202eb\u2066c\u200fd", "abcd"),
    "zero width": ("a\u200bb\u200dc\ufeffd\u00ade\ufe0f", "abcde"),
    "line separators": ("a\u2028b\u00a0c", "a b c"),
    "surrogates": ("a\udcffb", "a\ufffdb"),
    "private use and unassigned": ("a\ue000b\U000e0041c\uffff", "abc"),
    "wide": ("日本 🎉 é", "日本 🎉 é"),
    "combining": ("e\u0301", "e\u0301"),
}
BYTES = {
    b"a\xffb": "a\ufffdb",
    b"\xc3\xa9": "é",
    b"\xe2\x80\xae": "",
    b"\x9b31m": "\ufffd31m",
    b"1/9\r2/9\r": "2/9",
    b"": "",
}


@pytest.mark.parametrize("name", TABLE)
def test_tricks_in_text(name: str) -> None:
    given_text, expected = TABLE[name]
    assert clean(given_text) == expected


@pytest.mark.parametrize("given_bytes", BYTES)
def test_tricks_in_bytes(given_bytes: bytes) -> None:
    assert clean(given_bytes) == BYTES[given_bytes]


def assert_harmless(text: str, limit: int = LIMIT) -> None:
    assert text.isprintable()
    assert len(text) <= limit
    assert not {unicodedata.category(c) for c in text} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text(st.characters(categories=None)), st.integers(0, 50))
def test_all_text_becomes_harmless(text: str, limit: int) -> None:
    assert_harmless(clean(text), LIMIT)
    assert_harmless(clean(text, limit), limit)
    assert clean(clean(text)) == clean(text)


@given(st.binary())
def test_all_bytes_become_harmless(line: bytes) -> None:
    assert_harmless(clean(line))
    if is_printable_ascii(line):
        assert clean(line).encode() == line


@given(
    st.lists(
        st.sampled_from(
            [
                "\x1b",
                "[",
                "]",
                "P",
                "31",
                "m",
                ";",
                "\x07",
                "\\",
                "\x9b",
                "\x9d",
                "\x9c",
                "\r",
                "x",
                "\u202e",
            ]
        )
    )
)
def test_broken_sequences_become_harmless(parts: list[str]) -> None:
    assert_harmless(clean("".join(parts)))


def test_very_long_line_is_cut_quickly() -> None:
    began = time.process_time()
    assert clean("\x9d" * 100_000) == ""
    assert len(clean(b"\x1b[1mx" * 10_000_000)) <= LIMIT
    assert clean("y" * 10_000_000) == "y" * (LIMIT - 3) + "..."
    assert time.process_time() - began < 2


def test_masks_of_secrets_ignore_removed_characters() -> None:
    """Test that secrets are found and hidden even if they contain characters that the sanitising of
    text removes.

    If they were not found, a program could print a secret with such a character in it. The host
    would not hide the secret, and this machine would show it without the character.
    """
    codes = [
        *range(0xD800),
        *range(0xE000, 0xE000 + 50),
        *range(0xF800, 0x30000),
        *range(0xE0000, 0xE0200),
        0xFFFFF,
        0x10FFFF,
    ]
    removable_characters = [
        chr(code)
        for code in codes
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Co", "Mn", "Lo")
    ]
    for char in removable_characters:
        if clean(f"a{char}b") == "ab" and char != "\r":
            assert unseen.strip_invisible(f"a{char}b".encode()) == b"ab", hex(ord(char))
    for name in (
        "colour",
        "8-bit CSI",
        "title",
        "clipboard",
        "8-bit OSC",
        "an OSC without end hides nothing",
        "DCS",
        "bidi",
    ):
        text, shown = TABLE[name]
        assert unseen.strip_invisible(text.encode()).decode() == shown == clean(text), name
