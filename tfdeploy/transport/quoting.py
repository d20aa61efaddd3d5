"""Build a command line that all login shells interpret alike: sh, bash, zsh, csh, tcsh, fish.

Words of plain characters are not quoted. If any word has another character, the whole command
becomes the argument of `printf %b`, in single quotes. Every character that some shell treats
specially in single quotes is written as an octal escape. No other module quotes words for hosts.
"""

from __future__ import annotations

import re
import shlex

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@+-][A-Za-z0-9_./:,@=+-]*\Z")
# Matches the characters that must be escaped inside '...'. There, a ' ends the quotes, ! is csh's
# history, and \ is an escape for fish and printf. Control characters break lines or are lost.
# \udc80 to \udcff stand for bytes that are not UTF-8.
_SPECIAL = re.compile(r"['!\\\x00-\x1f\x7f%\udc80-\udcff]")


def command_line(argv: tuple[str, ...]) -> str:
    """Return the command line that runs `argv`. If `argv` is a single word, it is a script for
    `sh -c`.

    Raises ValueError if there are no words or a word contains NUL.
    """
    if not argv or any("\0" in word for word in argv):
        raise ValueError("a command must have words, and no word may contain NUL")
    if len(argv) == 1:
        script = argv[0]
        return f"exec /bin/sh -c {script}" if _PLAIN.match(script) else _escaped_line(script)
    if all(_PLAIN.match(word) for word in argv):
        return "exec " + " ".join(argv)
    return _escaped_line("exec " + shlex.join(argv))


def _escaped_line(script: str) -> str:
    """Return a command line that runs the script in sh. All special characters are escaped."""
    escaped = _SPECIAL.sub(lambda match: f"\\0{ord(match[0]) & 0xFF:03o}", script)
    return 'exec /bin/sh -c \'exec /bin/sh -c "$(printf %b "$0")"\' \'' + escaped + "'"
