"""Parse one line of a known_hosts file in its usual form. Pure.

A usual line has plain or hashed names, no marker except `@revoked`, and a key of a usual type and
size. `known_hosts.py` lets OpenSSH parse any other line. Lines are bytes, because OpenSSH does not
decode them.
"""

from __future__ import annotations

import base64
import hmac
import re

CERT_AUTHORITY = "@cert-authority"
REVOKED = "@revoked"
_NAME = rb"[A-Za-z0-9_.:%\[\]-]{1,1000}"
# The base64 of 20 bytes. The unused bits of the last letter are zero.
_BYTES_20 = rb"[A-Za-z0-9+/]{26}[AEIMQUYcgkosw048]="
# OpenSSH requires a blank after a marker. Elsewhere it also accepts a tab.
USUAL = re.compile(
    rb"[ \t]*(?P<revoked>@revoked [ \t]*)?"
    rb"(?P<names>%b(?:,%b)*|\|1\|(?P<salt>%b)\|(?P<digest>%b))"
    rb"[ \t]+(?P<keytype>[a-z0-9-]+)[ \t]+(?P<key>[A-Za-z0-9+/]+={0,2})\r?(?:[ \t][^\0]*)?"
    % (_NAME, _NAME, _BYTES_20, _BYTES_20)
)
_KEY_BYTES = {  # keytype -> sizes of its keys
    b"ssh-ed25519": (51,),
    b"ecdsa-sha2-nistp256": (104,),
    b"ecdsa-sha2-nistp384": (136,),
    b"ecdsa-sha2-nistp521": (172,),
    b"ssh-rsa": (279, 407, 535),  # of 2048, 3072 and 4096 bits
}


def is_ignored(line: bytes) -> bool:
    """True for comments and blank lines."""
    text = line.strip(b" \t\r")
    return not text or line.lstrip(b" \t").startswith(b"#")


def is_authority(line: bytes) -> bool:
    """True if OpenSSH treats the key as that of a certificate authority, or ignores the line."""
    return line.lstrip(b" \t").startswith(b"@cert-authority ")


def may_match(line: bytes, name: str) -> bool:
    """True if OpenSSH may find `name` in the line, which then has the name, a pattern or a hash."""
    return any(sign in line for sign in (b"*", b"?", b"|")) or name.encode() in line.lower()


def is_hash_of(name: str, salt: bytes, digest: bytes) -> bool:
    """True if a hash of `name` with this salt gives this digest."""
    return hmac.digest(salt, name.encode(), "sha1") == digest


def usual_key(keytype: bytes, word: bytes) -> bytes | None:
    """Return the bytes of a key of a usual type and size, else None."""
    key = decode_key(word)
    is_usual = len(key) in _KEY_BYTES.get(keytype, ()) and keytype_of(key) == keytype.decode()
    return key if is_usual else None


def decode_key(word: bytes) -> bytes:
    """Return the bytes of a key, or b"" if `word` is not base64."""
    try:
        return base64.b64decode(word, validate=True)
    except ValueError:
        return b""


def keytype_of(key: bytes) -> str:
    """Return the key type that is stored in the key itself."""
    return key[4 : 4 + int.from_bytes(key[:4], "big")].decode("latin-1")
