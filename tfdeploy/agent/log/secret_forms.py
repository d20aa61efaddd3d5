"""List the forms in which a program may print a secret: unchanged, in base64, percent-encoded,
JSON-escaped, or as Python's repr.

Pure. Forms that reveal too little of a secret, or would match ordinary text, are left out.
"""

from __future__ import annotations

import binascii
import functools
import json

from tfdeploy.agent.annotations import Iterable, Iterator, List

SHORTEST = 4  # To mask texts with fewer characters would only make the log unreadable.
# A single line of a longer value is masked if it has at least this many characters.
SHORTEST_LINE = 8
_SHORTEST_BASE64 = 5
_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
# For each of four encoders, the bytes that it leaves unescaped. The encoders are quote(safe=''),
# quote, encodeURIComponent, and one that escapes all bytes.
_SAFE = (_UNRESERVED, _UNRESERVED + b"/", _UNRESERVED + b"!'()*", b"")


def printed_forms(secrets: Iterable[str]) -> List[bytes]:
    """Return all forms in which these secrets may be printed, the longest form first."""
    encoded = {
        form for text in secrets for piece in _parts_to_mask(text) for form in _encodings(piece)
    }
    return sorted(encoded, key=lambda form: (-len(form), form))


def _parts_to_mask(text: str) -> Iterator[str]:
    """Yield the texts to mask for one secret: the secret, the secret without surrounding white
    space, and each line if the secret has several lines. Texts that are too short are left out."""
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
    """Return, for each way of percent-encoding, what each of the 256 bytes becomes."""
    return [
        [bytes((byte,)) if byte in safe else form % byte for byte in range(256)]
        for safe in _SAFE
        for form in (b"%%%02X", b"%%%02x")
    ]


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """Yield the base64 forms of a secret that is part of a longer text. Base64 encodes groups of
    three bytes, and the secret may begin at any byte of a group, so there are three forms.
    Characters at both ends that also depend on neighbouring bytes are left out."""
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
        # as Go's JSON encoder writes it
        yield in_json.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        yield json.dumps(in_json, ensure_ascii=ascii_only)[1:-1]  # JSON within JSON
    for shown in (repr(text)[1:-1], repr(raw)[2:-1]):
        plain = shown.replace("\\'", "'")
        yield plain
        yield plain.replace("'", "\\'")
    yield text.replace("'", "'\\''")  # as a shell's trace (`set -x`) shows it
    yield text.replace("'", "'\"'\"'")
