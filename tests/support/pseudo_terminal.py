"""A program on a real terminal (a pty): what it writes, the keys it is given, and how it leaves the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.stopwatch import Stopwatch

ALT_ON, ALT_OFF, CURSOR_ON = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


class Terminal:
    """A pty with a program on it; what it wrote, and the keys it is given."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, cwd: Path | None = None, columns: int = 100, rows: int = 24
    ) -> None:
        self.control, self.end = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.end)
        env = {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        env.pop("COLUMNS", None)
        env.pop("LINES", None)
        self.process = subprocess.Popen(
            command, stdin=self.end, stdout=self.end, stderr=self.end, env=env, cwd=cwd, start_new_session=True
        )
        self.output = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.control, keys)

    def until(self, text: str, *, within_s: float = 20) -> bytes:
        """What came, up to a moment at which `text` is on the screen."""
        watch = Stopwatch()
        begun = len(self.output)
        while text.encode() not in plain(self.output[begun:]):
            assert watch.seconds < within_s, f"{text!r} is not in {plain(self.output[-3000:]).decode(errors='replace')}"
            self._pump(0.2)
        return self.output[begun:]

    def finish(self, *, within_s: float = 20) -> int:
        """The exit code; all output is read."""
        watch = Stopwatch()
        while self.process.poll() is None:
            assert watch.seconds < within_s, "it did not end"
            self._pump(0.05)
        while self._pump(0.05):
            pass
        return self.process.returncode

    def _pump(self, wait_s: float) -> bool:
        ready, _, _ = select.select([self.control], [], [], wait_s)
        if ready:
            self.output += os.read(self.control, 65536)
        return bool(ready)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.control)
        os.close(self.end)


def plain(output: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-?]*[ -/]*[@-~]", b"", output)


def restored(terminal: Terminal) -> bool:
    after = terminal.output.rfind(ALT_OFF)
    return (
        terminal.output.count(ALT_ON) == terminal.output.count(ALT_OFF) > 0
        and after > terminal.output.rfind(ALT_ON)
        and CURSOR_ON in terminal.output
        and termios.tcgetattr(terminal.end) == terminal.before
    )
