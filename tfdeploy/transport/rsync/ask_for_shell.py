"""The remote shell of our rsync: asks tfdeploy to run the remote command. A program of its own:

    python -S -E ask_for_shell.py DESCRIPTOR host remote command

rsync's pipes themselves go over the socket DESCRIPTOR, so no byte of a transfer passes through
here.
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
