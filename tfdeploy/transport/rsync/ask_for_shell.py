"""Ask tfdeploy to run rsync's command on the host. rsync runs this file as its remote shell (`-e`).

    python -S -E ask_for_shell.py DESCRIPTOR host remote command

This program sends its standard streams, which are rsync's pipes, to tfdeploy over the socket
DESCRIPTOR. So tfdeploy moves the bytes of the transfer, and this program only waits. If tfdeploy is
killed, this program ends rsync, which would otherwise run on and write to the host.
"""

import os
import signal
import socket
import sys


def main() -> int:
    connection = socket.socket(fileno=int(sys.argv[1]))
    request = b"\0".join(argument.encode("utf-8", "surrogateescape") for argument in sys.argv[2:])
    socket.send_fds(connection, [request], [0, 1, 2])
    answer = connection.recv(1)
    if not answer:
        os.killpg(0, signal.SIGTERM)  # ends rsync too, which is in the same process group
    return answer[0] if answer else 255


if __name__ == "__main__":
    sys.exit(main())
