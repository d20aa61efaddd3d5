"""ssh for an rsync that is confined: started by us, who may read the keys, on the pipes that rsync made for it.

rsync asks once, before it has read any byte of the host: a second request is not answered.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from types import TracebackType

WORDS_BYTES = 64 << 10
END_S = 3.0
PIPES = 3


class SshOutside:
    """Answers one request on `theirs`, which the confined process inherits. `argv`: of ssh, without the host's name."""

    def __init__(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self._argv, self._environment = argv, environment
        self._ours, self.theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def begin(self) -> None:
        """Once the confined process has `theirs`."""
        self.theirs.close()
        self._thread.start()

    def __enter__(self) -> SshOutside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends ssh, if rsync's end has not."""
        with self._lock:
            self._closed = True
            process = self._process
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        if process is not None:
            _end(process)
        if self._thread.ident is not None:
            self._thread.join(END_S)
        self.theirs.close()
        self._ours.close()

    def _serve(self) -> None:
        pipes: list[int] = []
        with contextlib.suppress(OSError):
            try:
                words, pipes = _receive(self._ours)
                process = self._start(words, pipes) if _is_rsync(words) and len(pipes) == PIPES else None
            finally:
                for pipe in pipes:
                    os.close(pipe)
            code = 255 if process is None else process.wait()
            self._ours.send(bytes([code if 0 <= code < 256 else 255]))
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)  # rsync's end, where ssh did not start

    def _start(self, words: list[str], pipes: list[int]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closed:
                return None
            self._process = subprocess.Popen(
                (*self._argv, *words),
                stdin=pipes[0],
                stdout=pipes[1],
                stderr=pipes[2],
                env=self._environment,
                start_new_session=True,
            )
            return self._process


def _receive(sock: socket.socket) -> tuple[list[str], list[int]]:
    fds = array.array("i")
    blob, control, _, _ = sock.recvmsg(WORDS_BYTES, socket.CMSG_SPACE(PIPES * fds.itemsize))
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return [os.fsdecode(word) for word in blob.split(b"\0")], list(fds)


def _is_rsync(words: list[str]) -> bool:
    """Whether these are rsync's words: our name for the host, and a server there. The host's name must be no option of ssh."""
    return words[0] == "target" and "--server" in words


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
