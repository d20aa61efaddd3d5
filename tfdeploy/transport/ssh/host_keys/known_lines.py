"""Parse one line of a known_hosts file that has the usual form. All functions are pure.

A usual line has plain or hashed names, no marker except `@revoked`, and a key of a usual type and
size. OpenSSH parses any other line, see `known_hosts.py`. Lines are bytes, because OpenSSH does not
decode them either.
"""

from __future__ import annotations

import base64
import hmac
import re

CERT_AUTHORITY = "@cert-authority"
REVOKED = "@revoked"
_NAME = rb"[A-Za-z0-9_.:%\[\]-]{1,1000}"
# Matches 20 bytes in base64. The last letter has two unused bits, which are zero.
_BYTES_20 = rb"[A-Za-z0-9+/]{26}[AEIMQUYcgkosw048]="
# OpenSSH requires a blank after a marker. In other places it also accepts a tab.
USUAL = re.compile(
    rb"[ \t]*(?P<revoked>@revoked [ \t]*)?"
    rb"(?P<names>%b(?:,%b)*|\|1\|(?P<salt>%b)\|(?P<digest>%b))"
    rb"[ \t]+(?P<keytype>[a-z0-9-]+)[ \t]+(?P<key>[A-Za-z0-9+/]+={0,2})\r?(?:[ \t][^\0]*)?"
    % (_NAME, _NAME, _BYTES_20, _BYTES_20)
)
_KEY_BYTES = {  # {keytype: sizes of its keys in bytes}
    b"ssh-ed25519": (51,),
    b"ecdsa-sha2-nistp256": (104,),
    b"ecdsa-sha2-nistp384": (136,),
    b"ecdsa-sha2-nistp521": (172,),
    b"ssh-rsa": (279, 407, 535),  # 2048, 3072 and 4096 bits
}


def is_comment_or_blank(line: bytes) -> bool:
    """True if the line is a comment or blank."""
    text = line.strip(b" \t\r")
    return not text or line.lstrip(b" \t").startswith(b"#")


def is_authority(line: bytes) -> bool:
    """True if the line is marked @cert-authority.

    If the line is valid, its key belongs to a certificate authority, and not to a host.
    """
    return line.lstrip(b" \t").startswith(b"@cert-authority ")


def may_match(line: bytes, name: str) -> bool:
    """True if OpenSSH may find `name` in the line: it contains `name`, a pattern or a hash."""
    return any(sign in line for sign in (b"*", b"?", b"|")) or name.encode() in line.lower()


def is_hash_of(name: str, salt: bytes, digest: bytes) -> bool:
    """True if the hash of `name` with this salt is `digest`."""
    return hmac.digest(salt, name.encode(), "sha1") == digest


def decode_usual_key(keytype: bytes, encoded: bytes) -> bytes | None:
    """Return the bytes of an SSH key in base64 if its type and size are usual, else None."""
    key = decode_key(encoded)
    is_usual = len(key) in _KEY_BYTES.get(keytype, ()) and keytype_of(key) == keytype.decode()
    return key if is_usual else None


def decode_key(encoded: bytes) -> bytes:
    """Return the bytes of an SSH key in base64, or b"" if `encoded` is not base64."""
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        return b""


def keytype_of(key: bytes) -> str:
    """Return the key type that the bytes of the key contain."""
    return key[4 : 4 + int.from_bytes(key[:4], "big")].decode("latin-1")
