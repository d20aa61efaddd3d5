"""Test that tfdeploy finds private keys of every format, even in the middle of another file.

The first line of a key alone does not count as a key.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.stopwatch import Stopwatch
from tfdeploy.tree import key_blocks, read_tree
from tfdeploy.tree.key_blocks import SEARCHED_BYTES, private_key_line

BODY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"
PUTTY = f"""PuTTY-User-Key-File-3: ssh-ed25519
Encryption: none
Comment: mine
Public-Lines: 2
{BODY}
{BODY[:20]}
Private-Lines: 1
{BODY[:48]}
Private-MAC: 0
"""
KINDS = (
    "OPENSSH PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "DSA PRIVATE KEY",
    "PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
)


@pytest.mark.parametrize(
    "text",
    [
        *(f"-----BEGIN {kind}-----\n{BODY}\n{BODY}\n-----END {kind}-----\n" for kind in KINDS),
        "-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: "
        f"AES-128-CBC,00\r\n\r\n{BODY}\r\n",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{BODY}\n",
        f'---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: "mine"\n{BODY}\n',
        f'{{"private_key": "-----BEGIN PRIVATE KEY-----\\n{BODY}\\n"}}',
        f'KEY = ("-----BEGIN PRIVATE KEY-----\\n"\n    "{BODY}\\n")\n',
        f"key: |\n    -----BEGIN PRIVATE KEY-----\n    {BODY}\n".removeprefix("key: |\n"),
        PUTTY,
    ],
)
def test_private_key_is_found_with_line(text: str) -> None:
    assert private_key_line(text.encode()) == 1
    assert private_key_line(b"\0\xff\n\n" + text.encode()) == 3


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
        'if data.startswith("-----BEGIN OPENSSH PRIVATE KEY-----"):\n    raise ValueError("a '
        'private key must not be here")\n',
        f"-----BEGIN PUBLIC KEY-----\n{BODY}\n",
        f"-----BEGIN CERTIFICATE-----\n{BODY}\n",
        "PuTTY-User-Key-File-2: is how such a file begins\nEncryption: none\n",
        Path(key_blocks.__file__).read_text(),
    ],
)
def test_header_without_key_is_ignored(text: str) -> None:
    assert private_key_line(text.encode()) == 0


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----" + "a: b" * 100 + "\n",
        "-----BEGIN PRIVATE KEY-----" + "\n '+," * 30 + "a: b\n" * 9,
        "PuTTY-User-Key-File-3: x\nEncryption: \n",
        "PRIVATE KEY-----BEGIN A A A A ",
    ],
)
def test_search_is_fast_for_any_text(piece: str) -> None:
    content = (piece * (SEARCHED_BYTES // len(piece))).encode()
    watch = Stopwatch()
    assert private_key_line(content) == 0
    assert watch.seconds < 2


def test_keys_in_tree_are_named_with_and_without_cache(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    key = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n"
    for name, text in {
        "a.py": "x",
        "b/id": key,
        "c.py": f"# mine\n{key}",
        "large": key + "x" * SEARCHED_BYTES,
    }.items():
        place = code / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        os.utime(place, (1_000_000_000, 1_000_000_000))
    for _ in range(2):
        assert read_tree(code, cache=tmp_path / "cache").private_keys == (("b/id", 1), ("c.py", 2))
