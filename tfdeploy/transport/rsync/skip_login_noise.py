"""Runs a remote shell for rsync and drops what the login shell printed before rsync spoke. A program of its own:

    python -S -E skip_login_noise.py ssh ... host remote command

rsync's data towards the host do not pass through here.
"""

import os
import subprocess
import sys

MARK = b"tfdeploy-rsync-begins\n"
NOISE_BYTES = 1 << 20


def main() -> int:
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
    assert process.stdout is not None
    source, seen = process.stdout.fileno(), b""
    while MARK not in seen and len(seen) < NOISE_BYTES:
        block = os.read(source, 1 << 16)
        if not block:
            return process.wait()
        seen += block
    block = seen.partition(MARK)[2]
    while True:
        while block:
            block = block[os.write(1, block) :]
        block = os.read(source, 1 << 18)
        if not block:
            return process.wait()


if __name__ == "__main__":
    sys.exit(main())
