"""Run the remote command of a local rsync, and connect it to rsync's pipes.

rsync's remote shell (`-e`) is a small program, ask_for_shell.py, that sends rsync's pipes to
tfdeploy. A confined rsync therefore needs neither keys nor network sockets. Only the first request
is answered. rsync sends it before it has read any byte from the host, so no host can influence this
request.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping

from tfdeploy.errors import TfdeployError
from tfdeploy.transport.protocols import Pipes, RemoteCommand
from tfdeploy.transport.ssh.joined import copy_after_mark

WORDS_BYTES = 64 << 10  # maximum size of a request, in bytes
END_S = 3.0  # seconds to wait until the thread ends
PIPES = 3  # number of file descriptors in a request
Start = Callable[[str], RemoteCommand]


class RemoteShell:
    """Answers one request of rsync, which comes through the socket `theirs` that rsync inherits.

    Use a RemoteShell as a context manager.
    """

    def __init__(self, start: Start, mark: bytes) -> None:
        """Create the sockets.

        `start`: a function that starts a command line on the host. `mark`: what that command prints
        first, after any output of the login shell. If b"", the command prints no mark.
        """
        self._start, self._mark = start, mark
        self._ours, self.theirs = socket.socketpair()
        self._command: RemoteCommand | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def begin(self) -> None:
        """Start the thread that waits for rsync's request.

        Call this only after rsync has inherited `theirs`.
        """
        self.theirs.close()
        self._thread.start()

    def __enter__(self) -> RemoteShell:
        return self

    def __exit__(self, *_: object) -> None:
        """End the remote command and the thread. Call this after rsync has ended."""
        with self._lock:
            self._closed = True
            command = self._command
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        if command is not None:
            command.close()
        if self._thread.ident is not None:
            self._thread.join(END_S)
        self.theirs.close()
        self._ours.close()

    def _serve(self) -> None:
        """Wait for rsync's request, run the command in it, and answer with the exit code."""
        with contextlib.suppress(OSError):
            request, pipes, _, _ = socket.recv_fds(self._ours, WORDS_BYTES, PIPES)
            command = [os.fsdecode(argument) for argument in request.split(b"\0")]
            for pipe in pipes:
                # rsync has made its pipes non-blocking, and the mode of a pipe is the same in all
                # processes. The code that copies bytes needs blocking pipes.
                os.set_blocking(pipe, True)
            # Refuse anything but the start of rsync's server on the host `target`, which is the
            # name that transfer.py gives to rsync.
            if command[0] == "target" and "--server" in command and len(pipes) == PIPES:
                self._run_requested_command(" ".join(command[1:]), (pipes[0], pipes[1], pipes[2]))
            else:
                self._finish(255, pipes)

    def _run_requested_command(self, line: str, pipes: Pipes) -> None:
        """Run the command line on the host, connected to the pipes, until the command ends."""
        code = 255
        try:
            command = self._start(line)
            with self._lock:
                self._command = command
                closed = self._closed
            if closed:
                command.close()
            code = command.relay_until_end(pipes, self._mark)
        except TfdeployError as error:
            with contextlib.suppress(OSError):
                os.write(pipes[2], f"{error.what}\n".encode())
        finally:
            self._finish(code, list(pipes))

    def _finish(self, code: int, pipes: list[int]) -> None:
        """Close the pipes, and let the program that sent the request exit with `code`."""
        for pipe in pipes:
            os.close(pipe)
        with contextlib.suppress(OSError):
            self._ours.send(bytes([code if 0 <= code < 256 else 255]))
            self._ours.shutdown(socket.SHUT_RDWR)


class SshCommand:
    """An implementation of protocols.RemoteCommand with an ssh process.

    `argv`: ssh and its arguments, without the host's name.
    """

    def __init__(self, argv: tuple[str, ...], environment: Mapping[str, str], line: str) -> None:
        self._argv, self._environment, self._line = argv, environment, line
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def relay_until_end(self, pipes: Pipes, drop_up_to: bytes = b"") -> int:
        with self._lock:
            if self._closed:
                return 255
            self._process = process = subprocess.Popen(
                (*self._argv, "target", self._line),
                stdin=pipes[0],
                stdout=subprocess.PIPE if drop_up_to else pipes[1],
                stderr=pipes[2],
                env=self._environment,
                start_new_session=True,
            )
        if process.stdout is not None:
            with contextlib.suppress(OSError), process.stdout as stdout:
                copy_after_mark(
                    drop_up_to, iter(lambda: os.read(stdout.fileno(), 1 << 18), b""), pipes[1]
                )
        return process.wait()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._process is not None:
            try:
                self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
