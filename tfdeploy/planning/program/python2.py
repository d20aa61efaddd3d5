"""Python 2, which a TensorFlow 1 program may be written in: found where Python 3 cannot read it. Reads text alone."""

from __future__ import annotations

import re

# What Python 3 took away, as it stands in a line.
_SIGNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("the print statement", re.compile(r"(^|[:;])\s*print\s+(?![=(.])\S|(^|[:;])\s*print\s*>>")),
    ("the exec statement", re.compile(r"(^|[:;])\s*exec\s+[^=(\s]")),
    ("`except E, name:`", re.compile(r"^\s*except\s+[\w.]+\s*,\s*\w+\s*:|^\s*except\s*\(.*\)\s*,\s*\w+\s*:")),
    ("`raise E, value`", re.compile(r"(^|[:;])\s*raise\s+[\w.]+\s*,")),
    ("`<>`", re.compile(r"<>")),
    ("backquotes", re.compile(r"`[^`]+`")),
    ("a number such as 0777 or 10L", re.compile(r"(?<![\w.])(0\d+|\d+[lL])(?![\w.])")),
    ("ur'text'", re.compile(r"(?<!\w)[uU][rR]['\"]")),
)
BUILTINS = frozenset({"basestring", "execfile", "long", "raw_input", "reduce", "unichr", "unicode", "xrange"})


def sign(text: str, error: SyntaxError) -> str | None:
    """What of Python 2 stands where Python 3 stopped reading; None where it is an error in any Python."""
    if isinstance(error, TabError):
        return "tabs mixed with spaces"
    lines = text.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    said = error.msg or ""
    if "call to 'print'" in said or "call to 'exec'" in said:
        return "the exec statement" if "exec" in said else "the print statement"
    return next((name for name, pattern in _SIGNS if pattern.search(line)), None)
