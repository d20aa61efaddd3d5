"""One line of a known_hosts file, read exactly as OpenSSH reads it (hostfile.c, match.c). Pure.

Lines are bytes: OpenSSH knows no encoding, and only blanks and tabs part its words.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hmac
import re
from dataclasses import dataclass

CERT_AUTHORITY = "@cert-authority"
REVOKED = "@revoked"
RSA_BITS = 1024  # OpenSSH takes no shorter RSA key
_LONGEST_PATTERN = 1022
SALT_BYTES = 20
_NAMES = re.compile(rb"([^ \t\0]+)[ \t\0]")  # a NUL ends them as a blank does; a later one ends the line
_KEY = re.compile(rb"[ \t]*([^ \t]+)[ \t]+([^ \t]+)")
_ECDSA = {f"ecdsa-sha2-nistp{bits}": (f"nistp{bits}".encode(), 1 + 2 * -(-bits // 8)) for bits in (256, 384, 521)}
_FIELDS = {  # kind of key -> how many fields it has behind its name
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ssh-dss": 4,
    **dict.fromkeys(_ECDSA, 2),
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
_ALSO_RSA = ("rsa-sha2-256", "rsa-sha2-512")  # OpenSSH reads them as ssh-rsa


@dataclass(frozen=True)
class KnownLine:
    """`names`: the names as they stand, with commas, or hashed; `start` and `end`: where in the line."""

    marker: str  # "", @cert-authority, @revoked
    names: str
    start: int
    end: int
    keytype: str
    key: bytes

    @property
    def hashed(self) -> bool:
        return self.names.startswith("|")

    @property
    def plain(self) -> bool:
        """Its names are neither hashed nor patterns."""
        return not self.hashed and not any(char in self.names for char in "*?!")


def read_line(line: bytes) -> KnownLine | None:
    """None for comments and for what OpenSSH ignores."""
    text = line.rstrip(b"\n")
    marker, at = _marker(text.partition(b"\0")[0], len(text) - len(text.lstrip(b" \t")))
    found = _NAMES.match(text, at)
    words = _KEY.match(text[found.end() :].partition(b"\0")[0]) if found else None
    if marker is None or found is None or words is None or text.lstrip(b" \t").startswith(b"#"):
        return None
    keytype, key = words[1].decode("latin-1"), _decoded(words[2])
    keytype = "ssh-rsa" if keytype in _ALSO_RSA else keytype
    names = found[1].decode("latin-1")
    if key is None or not is_key(keytype, key) or not _names_hold(names):
        return None
    return KnownLine(marker, names, *found.span(1), keytype, key)


def matches(names: str, name: str) -> bool:
    """Whether the names of a line, in any of their forms, mean `name` (in lower case)."""
    if names.startswith("|"):
        parts = hash_parts(names)
        return parts is not None and is_hash_of(name, *parts)
    matched = False
    for pattern in names.lower().split(","):
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def is_hash_of(name: str, salt: bytes, digest: bytes) -> bool:
    return hmac.digest(salt, name.encode(), "sha1") == digest


def hash_parts(names: str) -> tuple[bytes, bytes] | None:
    """(salt, digest) of a hidden name; None: of another form, which OpenSSH drops."""
    parts = names.split("|")
    if len(parts) != 4 or parts[:2] != ["", "1"]:
        return None
    salt, digest = (_decoded(part.encode("latin-1")) for part in parts[2:])
    if salt is None or digest is None or len(salt) != SALT_BYTES or names.split() != [names]:
        return None
    return salt, digest


def hashed_name(name: str, salt: bytes) -> str:
    """`|1|salt|hash`, as HashKnownHosts has it. `salt`: 20 bytes."""
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def without_name(line: bytes, known: KnownLine, name: str) -> bytes | None:
    """The line with its other names alone; where a pattern means `name` too, with `!name`. None: no other name is left."""
    if known.hashed:
        return None
    left = [each for each in known.names.split(",") if each.lower() != name]
    if matches(",".join(left), name):
        left.append(f"!{name}")
    if all(not each or each.startswith("!") for each in left):
        return None
    return line[: known.start] + ",".join(left).encode("latin-1") + line[known.end :]


def is_key(keytype: str, key: bytes) -> bool:
    """Whether `key` is a public key of that kind, as far as its form says it."""
    first, *fields = _fields(key) or [b""]
    if keytype not in _FIELDS or first != keytype.encode() or len(fields) != _FIELDS[keytype]:
        return False
    if keytype == "ssh-rsa":
        return int.from_bytes(fields[1], "big").bit_length() >= RSA_BITS
    if keytype == "ssh-ed25519":
        return len(fields[0]) == 32
    if keytype in _ECDSA:
        return (fields[0], len(fields[1])) == _ECDSA[keytype]  # the curve, and a point that is not compressed
    return True


def keytype_of(key: bytes) -> str:
    """The kind that a key says it is."""
    return (_fields(key) or [b""])[0].decode("latin-1")


def _marker(text: bytes, at: int) -> tuple[str | None, int]:
    """(marker, where the names begin). None: OpenSSH does not take it. It looks for a blank first, then for a tab."""
    if not text.startswith(b"@", at):
        return "", at
    blank = text.find(b" ", at)
    end = blank if blank >= 0 else text.find(b"\t", at)
    word = text[at : max(end, at)].decode("latin-1")
    if word not in (CERT_AUTHORITY, REVOKED):
        return None, at
    rest = text[end:].lstrip(b" \t")
    return (None if rest.startswith(b"@") else word), len(text) - len(rest)


def _names_hold(names: str) -> bool:
    """OpenSSH drops a line with a hash of another form, or with a name that is too long."""
    if names.startswith("|"):
        return hash_parts(names) is not None
    return len(names) <= _LONGEST_PATTERN or all(len(each.removeprefix("!")) <= _LONGEST_PATTERN for each in names.split(","))


def _decoded(word: bytes) -> bytes | None:
    """base64 with its padding, among white space (a line may end in a carriage return). None: it is none."""
    tight = b"".join(word.split())
    try:
        raw = base64.b64decode(tight, validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw if base64.b64encode(raw) == tight else None


def _fields(key: bytes) -> list[bytes] | None:
    """The fields of a key, each behind its length. None: they do not fill it exactly."""
    fields, at = [], 0
    while at < len(key):
        end = at + 4 + int.from_bytes(key[at : at + 4], "big")
        if end > len(key) or at + 4 > len(key):
            return None
        fields.append(key[at + 4 : end])
        at = end
    return fields
