"""The remote shell of an rsync that is confined: asks tfdeploy, outside, to start ssh on its pipes. A program of its own:

    python -S -E ask_for_ssh.py DESCRIPTOR host remote command

The pipes themselves go over the socket DESCRIPTOR, so no byte of a transfer passes through here.
"""

import array
import socket
import sys


def main() -> int:
    asking = socket.socket(fileno=int(sys.argv[1]))
    words = b"\0".join(word.encode("utf-8", "surrogateescape") for word in sys.argv[2:])
    pipes = array.array("i", (0, 1, 2))
    asking.sendmsg([words], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pipes)])
    answer = asking.recv(1)
    return answer[0] if answer else 255


if __name__ == "__main__":
    sys.exit(main())
