"""Change bytes, lines, keys or values of a file at random, as a tired user, a broken disk or an
attacker would.

The same state of `random.Random` always gives the same changes.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

_KEY = re.compile(rb"(?<![\w.\[\]-])([A-Za-z_][\w.\[\]-]*)(:(?=[ \n]))")
_VALUE = re.compile(
    rb"(?<=: )(\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\]|\{[^}\n]*\}|[^\s,{}\[\]#][^,{}\[\]\n#]*)"
)
_ITEM = re.compile(rb"(?<![\w./@~\"-])(\"[^\"\n]*\"|[\w./@~-]+)(?=[,\]])")

_TEXTS: tuple[str, ...] = (
    *json.loads(Path(__file__).with_name("nonsense.json").read_text()),
    *("9" * 400, "x" * 64, "x" * 254, "a." * 130 + "a"),
)
# Invalid UTF-8, NUL and a byte order mark.
_NO_TEXTS = (b"\xff", b"\xed\xa0\x80", b"\x00", b"\xc3", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf")
NONSENSE = (*(text.encode() for text in _TEXTS), *_NO_TEXTS)
_PIECES = (
    b"x",
    b"9",
    b"[",
    b"{a: ",
    b"\xc3\xa9",
    b"a.",
    b"(",
    b"- ",
    b"{x}",
    b"*a,",
    b"'",
    b"n[1-2]",
    b" ",
    b"\n",
)
# The lengths of a long value, in characters.
_LONG = (10_000, 100_000)
# The regular expressions search only this many bytes at the start of a file, because they take
# quadratic time for long values.
SEARCHED = 8192
_SIGNS = b":-[]{}&*!|>'\"#%@`, \n\t?<~\\\r\0\x85$(;"


def mutate(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return `content` after one to three changes. `others` are files from which lines may be
    copied.
    """
    for _ in range(chance.choice((1, 1, 1, 1, 1, 1, 2, 3))):
        content = chance.choices(_CHANGES, _WEIGHTS)[0](content, others, chance)
    return content


def _change_value(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    return _replace_match(_VALUE, content, chance.choice(NONSENSE), chance)


def _change_item(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    return _replace_match(_ITEM, content, chance.choice(NONSENSE), chance)


def _insert_text(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    """Replace a value by nonsense that YAML reads as text."""
    text = chance.choice(_TEXTS).replace("'", "''")
    return _replace_match(chance.choice((_VALUE, _ITEM)), content, f"'{text}'".encode(), chance)


def _swap_value(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    """Replace a value of the file by another value of the file."""
    matches = _VALUE.findall(content)
    return _replace_match(_VALUE, content, chance.choice(matches), chance) if matches else content


def _lengthen(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    size = chance.choice(_LONG)
    piece = chance.choice(_PIECES)
    return _replace_match(
        chance.choice((_VALUE, _KEY)), content, piece * (size // len(piece)), chance
    )


def _change_key(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    """Change a key: drop, double or replace a letter, swap two letters, or use another word."""
    matches = list(_KEY.finditer(content))
    if not matches:
        return content
    match = chance.choice(matches)
    key, at = match[1], chance.randrange(len(match[1]))
    spelt = (
        key[:at] + key[at + 1 :],
        key[:at] + key[at : at + 1] * 2 + key[at + 1 :],
        key[:at] + key[at + 1 : at + 2] + key[at : at + 1] + key[at + 2 :],
        key.upper(),
        chance.choice(matches)[1],
        chance.choice(NONSENSE),
    )
    return content[: match.start(1)] + chance.choice(spelt) + content[match.end(1) :]


def _change_bytes(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    changed = bytearray(content or b"x")
    for _number in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed))
        changed[at] = chance.choice(
            (chance.randrange(256), changed[at] ^ 1 << chance.randrange(8), chance.choice(_SIGNS))
        )
    return bytes(changed)


def _insert_bytes(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return (
        content[:at]
        + chance.choice((chance.choice(NONSENSE), bytes([chance.choice(_SIGNS)])))
        + content[at:]
    )


def _cut_bytes(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return chance.choice(
        (content[:at], content[at:], content[:at] + content[at + chance.randrange(1, 9) :])
    )


def _change_lines(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Swap, double, drop or indent lines, or copy lines from another file."""
    lines = content.splitlines(keepends=True) or [b"\n"]
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    what = chance.randrange(6)
    if what == 0:
        lines[one], lines[two] = lines[two], lines[one]
    elif what == 1:
        lines.insert(two, lines[one])
    elif what == 2:
        del lines[one]
    elif what == 3:
        lines[one] = chance.choice((b" ", b"  ", b"\t", b"    ", b"- ")) + lines[one]
    elif what == 4:
        lines[one] = lines[one].lstrip(b" ")
    else:
        lines[one:one] = chance.choice(others).splitlines(keepends=True)[chance.randrange(3) :][
            : chance.randrange(1, 6)
        ]
    return b"".join(lines)


def _add_anchor(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    """Add an anchor to a value, and replace another value by an alias or a merge key."""
    matches = list(_VALUE.finditer(content))
    if len(matches) < 2:
        return content
    one, two = sorted(chance.sample(matches, 2), key=lambda match: match.start())
    instead = chance.choice(
        (b"*a", b"{<<: *a}", b"[*a, *a]", b"{<<: [*a, *a]}", b"*b", b"{*a : x}")
    )
    return (
        content[: one.start()]
        + b"&a "
        + content[one.start() : two.start()]
        + instead
        + content[two.end() :]
    )


def _change_encoding(content: bytes, _: list[bytes], chance: random.Random) -> bytes:
    """Change the line ends or the encoding, or add a byte order mark or a second document."""
    what = chance.randrange(6)
    if what == 0:
        return content.replace(
            b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", "\u2028".encode(), "\x85".encode()))
        )
    if what == 1:
        return b"\xef\xbb\xbf" + content
    if what == 2:
        return content.decode("utf-8", "replace").encode(
            chance.choice(("utf-16", "utf-16-le", "utf-32", "latin-1")), "replace"
        )
    if what == 3:
        return (
            content
            + chance.choice((b"---\n", b"...\n", b"--- x\n", b"%YAML 1.2\n", b"\0", b"\x1a"))
            + content
        )
    return (
        content.replace(b"\n", chance.choice((b" ", b"")), 1)
        if what == 4
        else content.rstrip(b"\n")
    )


def _replace_match(
    pattern: re.Pattern[bytes], content: bytes, instead: bytes, chance: random.Random
) -> bytes:
    matches = list(pattern.finditer(content, 0, SEARCHED))
    if not matches:
        return content
    match = chance.choice(matches)
    return content[: match.start(1)] + instead + content[match.end(1) :]


_Change = Callable[[bytes, list[bytes], random.Random], bytes]
_OFTEN: dict[_Change, int] = {
    _change_value: 40,
    _insert_text: 40,
    _change_item: 40,
    _swap_value: 15,
    _change_key: 15,
    _change_lines: 40,
    _add_anchor: 10,
    _change_bytes: 15,
    _insert_bytes: 10,
    _cut_bytes: 6,
    _change_encoding: 8,
    _lengthen: 2,
}
_CHANGES, _WEIGHTS = tuple(_OFTEN), tuple(_OFTEN.values())
