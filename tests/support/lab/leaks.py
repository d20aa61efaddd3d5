"""Find files of a lab's hosts that contain a secret, in any form in which a program may print it.

This module does not use the code that masks secrets.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.parse
from collections.abc import Iterable

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command

COLOURS = rb"\x1b\[[0-9;]*m"
LOOK = f"""
import json, os, re, sys
wanted = [bytes.fromhex(word) for word in sys.argv[2].split(",")]
found = []
for folder, _, names in os.walk(os.path.expanduser(sys.argv[1])):
    for name in names:
        path = os.path.join(folder, name)
        try:
            content = open(path, "rb").read() if os.path.isfile(path) else b""
        except OSError:
            continue
        content += re.sub({COLOURS!r}, b"", content) if b"\\x1b" in content else b""
        if any(form in content for form in wanted) or any(
            form in os.fsencode(path) for form in wanted
        ):
            found.append(path)
print(json.dumps(found))
"""


def encoded_forms(text: str) -> set[str]:
    """Return the forms of a secret.

    The base64 forms lack the first and the last four characters, which depend on the text around
    the secret.
    """
    whole = [
        f"{text}",
        urllib.parse.quote(text),
        urllib.parse.quote_plus(text),
        json.dumps(text)[1:-1],
        repr(text)[1:-1],
    ]
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole.append(encode(b"x" * before + text.encode()).decode()[4:-4])
    return {
        *whole,
        repr(text.encode())[2:-1],
        *(line for line in text.splitlines() if len(line) >= 8),
    }


def find_leaks(
    operator: Tfdeploy, wanted: Iterable[bytes], folder: str = "~"
) -> dict[str, list[str]]:
    """Return {host: its files that contain one of `wanted`}. Colour codes inside the text are
    ignored.
    """
    command = [LOOK, folder, ",".join(form.hex() for form in wanted)]
    results = {}
    for host in operator.lab.hosts:
        done = subprocess.run(
            host_command(operator.lab, host, ["python3", "-ISc", *command]),
            capture_output=True,
            text=True,
            check=True,
        )
        results[host] = json.loads(done.stdout)
    return {host: paths for host, paths in results.items() if paths}


def find_shown(data: bytes | str, wanted: Iterable[bytes]) -> list[bytes]:
    """Return the elements of `wanted` that the text contains. An element also counts if colour
    codes interrupt it in the text.
    """
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
    plain = re.sub(COLOURS, b"", text)
    return [form for form in wanted if form in text or form in plain]
