"""Ask tfdeploy to run the remote command of an rsync, which runs this file as its remote shell.

    python -S -E ask_for_shell.py DESCRIPTOR host remote command

This program sends rsync's pipes to tfdeploy over the socket DESCRIPTOR. Therefore it need not copy
the bytes of the transfer itself.
"""

import socket
import sys


def main() -> int:
    asking = socket.socket(fileno=int(sys.argv[1]))
    words = b"\0".join(word.encode("utf-8", "surrogateescape") for word in sys.argv[2:])
    socket.send_fds(asking, [words], [0, 1, 2])
    answer = asking.recv(1)
    return answer[0] if answer else 255


if __name__ == "__main__":
    sys.exit(main())
