"""Read keys from a terminal: set the mode that delivers each key at once, and translate bytes to
names of keys."""

from __future__ import annotations

import codecs
import os
import re
import select
import termios

_NAMES = {
    b"A": "up",
    b"B": "down",
    b"H": "home",
    b"F": "end",
    b"5~": "pgup",
    b"6~": "pgdn",
    b"1~": "home",
    b"4~": "end",
    b"7~": "home",
    b"8~": "end",
}
_CONTROL = {
    0x0D: "enter",
    0x0A: "enter",
    0x7F: "backspace",
    0x08: "backspace",
    0x02: "pgup",
    0x06: "pgdn",
    0x15: "clear",
}
_SEQUENCE = re.compile(rb"\x1b(?:\[([0-?]*[ -/]*[@-~])|O([@-~]))")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


class KeyParser:
    """Translates bytes, in chunks of any size, to names of keys: "up", "pgdn", "esc", "enter", or
    the character itself."""

    def __init__(self) -> None:
        self._rest = b""
        self._text = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def is_inside_sequence(self) -> bool:
        """Return True if the bytes received so far end within an escape sequence. If no more bytes
        follow, `flush_escape` treats this beginning of a sequence as the Esc key."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        data, self._rest = self._rest + data, b""
        keys: list[str] = []
        position = 0
        while position < len(data):
            if data[position] != 0x1B:
                keys += self._plain_key(data[position : position + 1])
                position += 1
            elif match := _SEQUENCE.match(data, position):
                name = _NAMES.get(match[1] or match[2])
                keys += [name] if name else []
                position = match.end()
            elif _UNFINISHED.match(data, position) and len(data) - position < 32:
                self._rest = data[position:]
                break
            else:
                keys.append("esc")
                position += 1
        return keys

    def flush_escape(self) -> list[str]:
        """Return the Esc key if an escape sequence has begun. Call this method when no more bytes
        have followed in time."""
        begun, self._rest = self._rest, b""
        return ["esc"] if begun else []

    def _plain_key(self, byte: bytes) -> list[str]:
        if byte[0] in _CONTROL:
            return [_CONTROL[byte[0]]]
        char = self._text.decode(byte)
        return [char] if char and char.isprintable() else []


class Keyboard:
    """A terminal in the mode that delivers each key at once, without echo. The former mode is
    restored at the end of the `with` block.

    Ctrl-C remains a signal; Ctrl-Z has no effect. A descriptor that is not a terminal delivers no
    keys. At the end, unread keys are discarded, so that the shell does not get them. After
    `hand_over_unread`, they are not discarded."""

    # Seconds to wait for the rest of an escape sequence. If no more bytes arrive in that time, the
    # key was Esc.
    ESCAPE_S = 0.05

    def __init__(self, fd: int | None) -> None:
        self._fd = fd if fd is not None and os.isatty(fd) else None
        self._parser = KeyParser()
        self._before: list[object] | None = None
        self._drops_unread = True
        # True once the terminal has closed.
        self.gone = False

    def __enter__(self) -> Keyboard:
        if self._fd is not None:
            self._before = termios.tcgetattr(self._fd)
            mode = termios.tcgetattr(self._fd)
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            characters = list(mode[6])
            characters[termios.VMIN], characters[termios.VTIME] = 1, 0
            characters[termios.VSUSP] = b"\0"
            mode[6] = characters
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None and self._before is not None:
            timing = termios.TCSAFLUSH if self._drops_unread else termios.TCSADRAIN
            try:
                termios.tcsetattr(self._fd, timing, self._before)  # type: ignore[arg-type]
            except termios.error:
                # The error means that the terminal has hung up.
                self.gone = True

    def hand_over_unread(self) -> list[str]:
        """Leave unread keys for the next Keyboard of this terminal. Return the keys whose first
        bytes have already been read."""
        self._drops_unread = False
        keys: list[str] = []
        while self._parser.is_inside_sequence and not self.gone:
            keys += self.read(self.ESCAPE_S)
        return keys

    def read(self, timeout_s: float, wake_fd: int | None = None) -> list[str]:
        """Wait for keys for at most `timeout_s` seconds, and return them. Return as soon as a key
        arrives or the descriptor `wake_fd` is readable."""
        wait_s = min(timeout_s, self.ESCAPE_S) if self._parser.is_inside_sequence else timeout_s
        others = [] if wake_fd is None else [wake_fd]
        if self._fd is None or self.gone:
            select.select(others, [], [], wait_s)
            return []
        ready, _, _ = select.select([self._fd, *others], [], [], wait_s)
        if self._fd not in ready:
            return [] if ready else self._parser.flush_escape()
        try:
            data = os.read(self._fd, 1024)
        except OSError:
            data = b""
        self.gone = not data
        return self._parser.feed(data)
