"""Look up keys in the file that the setting `RevokedHostKeys` of ssh names.

The file is a list of public keys in text form, or was made by `ssh-keygen -k`. Only ssh-keygen
reads the second kind.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

from tfdeploy.transport.ssh.host_keys import ssh_keygen
from tfdeploy.transport.ssh.host_keys.known_lines import decode_key, is_comment_or_blank, keytype_of

_LIST = b"SSHKRL\n\0"
_KEY = re.compile(
    rb"[ \t]*((?:ssh-(?:ed25519|rsa|dss)|ecdsa-sha2-nistp(?:256|384|521)"
    rb"|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com))[ \t]+([^ \t\r]+)\r?(?:[ \t].*)?",
)
_REMEDY = "correct the file, or remove RevokedHostKeys from ssh's configuration"


def is_revoked(path: str, key: bytes) -> bool:
    """True if the file has the key. Raises HostUnreachable if the file cannot be read.

    Likewise, ssh accepts no host key if it cannot read the file.
    """
    description = f"RevokedHostKeys {path}"
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ssh_keygen.unreadable_error(description, error.strerror or "", _REMEDY) from error
    if text.startswith(_LIST):
        line = f"{keytype_of(key)} {base64.b64encode(key).decode()}\n".encode()
        arguments = ("-Q", "-f", path, "/dev/stdin")
        return not ssh_keygen.run_keygen(*arguments, stdin=line, file=description, remedy=_REMEDY)[
            0
        ]
    keys = [_KEY.fullmatch(line) for line in text.split(b"\n") if not is_comment_or_blank(line)]
    if not all(
        revoked and keytype_of(decode_key(revoked[2])).encode() == revoked[1] for revoked in keys
    ):
        raise ssh_keygen.unreadable_error(
            description, "one of its lines is not a public key", _REMEDY
        )
    return key in (decode_key(revoked[2]) for revoked in keys if revoked is not None)
