"""List the forms in which a program may print a secret: unchanged, in base64, percent-encoded,
JSON-escaped, or as Python's repr.

Forms that reveal too little of a secret, or that would match ordinary text, are left out. The
functions have no side effects.
"""

from __future__ import annotations

import binascii
import functools
import json

from tfdeploy.agent.annotations import Iterable, Iterator, List

SHORTEST = 4  # shorter texts are not masked, because they occur everywhere in a log
# A single line of a secret with several lines is masked if it has at least this many characters.
SHORTEST_LINE = 8
_SHORTEST_BASE64 = 5
_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
# Four percent-encoders, each given by the bytes that it leaves unescaped: quote(safe=''), quote,
# encodeURIComponent, and one that escapes all bytes.
_SAFE = (_UNRESERVED, _UNRESERVED + b"/", _UNRESERVED + b"!'()*", b"")


def printed_forms(secrets: Iterable[str]) -> List[bytes]:
    """Return all forms in which a program may print these secrets. The longest form comes first."""
    encoded = {
        form for text in secrets for piece in _parts_to_mask(text) for form in _encodings(piece)
    }
    return sorted(encoded, key=lambda form: (-len(form), form))


def _parts_to_mask(text: str) -> Iterator[str]:
    """Yield the texts to mask for one secret: the secret itself, the secret without white space at
    both ends, and each line of a secret with several lines. Texts that are too short are left out.
    """
    lines = [line.strip() for line in text.splitlines()]
    longest = [line for line in lines if len(line) >= SHORTEST_LINE] if len(lines) > 1 else []
    for piece in {text, text.strip(), *longest}:
        if len(piece) >= SHORTEST:
            yield piece


def _encodings(text: str) -> Iterator[bytes]:
    raw = text.encode("utf-8", "surrogateescape")
    yield raw
    yield from _base64_forms(raw)
    for table in _percent_tables():
        encoded = b"".join(map(table.__getitem__, raw))
        yield encoded
        yield encoded.replace(b"%20", b"+")
    for escaped in _escaped_forms(text, raw):
        yield escaped.encode("utf-8", "surrogateescape")


@functools.lru_cache()
def _percent_tables() -> List[List[bytes]]:
    """Return a table for each way of percent-encoding. A table says for each of the 256 bytes what
    it becomes."""
    return [
        [bytes((byte,)) if byte in safe else form % byte for byte in range(256)]
        for safe in _SAFE
        for form in (b"%%%02X", b"%%%02x")
    ]


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """Yield the base64 forms of a secret that is a part of a longer text. Base64 encodes groups of
    three bytes. The secret may begin at any of the three, so there are three forms. The characters
    at both ends of a form are left out if they also depend on bytes outside of the secret."""
    for before in range(3):
        encoded = binascii.b2a_base64(b"\0" * before + raw, newline=False)
        characters = encoded[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
        if len(characters) >= _SHORTEST_BASE64:
            yield characters
            yield characters.replace(b"+", b"-").replace(b"/", b"_")


def _escaped_forms(text: str, raw: bytes) -> Iterator[str]:
    for ascii_only in (True, False):
        in_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield in_json
        yield in_json.replace("/", "\\/")
        # Go's JSON encoder escapes these characters too.
        yield in_json.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        yield json.dumps(in_json, ensure_ascii=ascii_only)[1:-1]  # a JSON text within a JSON string
    for shown in (repr(text)[1:-1], repr(raw)[2:-1]):
        plain = shown.replace("\\'", "'")
        yield plain
        yield plain.replace("'", "\\'")
    yield text.replace("'", "'\\''")  # the output of `set -x` in a shell
    yield text.replace("'", "'\"'\"'")
