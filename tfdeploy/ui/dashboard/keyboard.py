"""Read keys from a terminal: bytes to key names, and the terminal mode that delivers each key at
once."""

from __future__ import annotations

import codecs
import os
import re
import select
import termios
from types import TracebackType

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
    """Bytes, in pieces of any size, to key names: "up", "pgdn", "esc", "enter", or the character
    itself."""

    def __init__(self) -> None:
        self._rest = b""
        self._text = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def waiting(self) -> bool:
        """True if an escape sequence has begun: the next bytes complete it, or `pause` makes it the
        Esc key."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        data, self._rest = self._rest + data, b""
        keys: list[str] = []
        at = 0
        while at < len(data):
            if data[at] != 0x1B:
                keys += self._plain(data[at : at + 1])
                at += 1
            elif match := _SEQUENCE.match(data, at):
                name = _NAMES.get(match[1] or match[2])
                keys += [name] if name else []
                at = match.end()
            elif _UNFINISHED.match(data, at) and len(data) - at < 32:
                self._rest = data[at:]
                break
            else:
                keys.append("esc")
                at += 1
        return keys

    def pause(self) -> list[str]:
        """Note that no more bytes came: a lone escape byte was the Esc key."""
        begun, self._rest = self._rest, b""
        return ["esc"] if begun else []

    def _plain(self, byte: bytes) -> list[str]:
        if byte[0] in _CONTROL:
            return [_CONTROL[byte[0]]]
        char = self._text.decode(byte)
        return [char] if char and char.isprintable() else []


class Keyboard:
    """A terminal that gives each key at once, without echo; restored on every way out.

    Ctrl-C stays a signal; Ctrl-Z does nothing meanwhile. Not a terminal: gives no keys.
    At the end, keys that were not read are dropped, so that no shell gets them, except after
    `hand_over`.
    """

    ESCAPE_S = 0.05

    def __init__(self, fd: int | None) -> None:
        self._fd = fd if fd is not None and os.isatty(fd) else None
        self._parser = KeyParser()
        self._before: list[object] | None = None
        self._drops_unread = True
        self.gone = False  # the terminal has closed

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd is not None and self._before is not None:
            when = termios.TCSAFLUSH if self._drops_unread else termios.TCSADRAIN
            try:
                termios.tcsetattr(self._fd, when, self._before)  # type: ignore[arg-type]
            except termios.error:  # hung up
                self.gone = True

    def hand_over(self) -> list[str]:
        """Keep unread keys for the terminal's next Keyboard. Return the key that has begun, if
        any."""
        self._drops_unread = False
        keys: list[str] = []
        while self._parser.waiting and not self.gone:
            keys += self.read(self.ESCAPE_S)
        return keys

    def read(self, timeout_s: float, wake: int | None = None) -> list[str]:
        """Return keys that came within `timeout_s` seconds, early with the first, or once `wake`
        can be read."""
        wait_s = min(timeout_s, self.ESCAPE_S) if self._parser.waiting else timeout_s
        others = [] if wake is None else [wake]
        if self._fd is None or self.gone:
            select.select(others, [], [], wait_s)
            return []
        ready, _, _ = select.select([self._fd, *others], [], [], wait_s)
        if self._fd not in ready:
            return [] if ready else self._parser.pause()
        try:
            data = os.read(self._fd, 1024)
        except OSError:
            data = b""
        self.gone = not data
        return self._parser.feed(data)
