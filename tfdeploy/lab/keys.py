"""Make ed25519 keys in OpenSSH's format in this process, because starting ssh-keygen is slow.

64 keys take less time than one run of ssh-keygen.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_key(path: Path, comment: str) -> str:
    """Create the private key `path` (0600) and path.pub. Return the public key without its comment.

    If path.pub exists, both files stay as they are.
    """
    public_path = path.with_name(path.name + ".pub")
    if public_path.exists():
        return " ".join(public_path.read_text().split()[:2])
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = (
        key.public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode()
    )
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(private)
    public_path.write_text(f"{public} {comment}\n")
    return public
