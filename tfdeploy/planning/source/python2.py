"""Recognises Python 2 syntax in the line of a file that Python 3 could not parse."""

from __future__ import annotations

import re

from tfdeploy.planning.source import parsed_file

# Syntax that Python 3 lacks: (description, pattern of one line).
_SYNTAX: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("the print statement", re.compile(r"(^|[:;])\s*print\s+(?![=(.])\S|(^|[:;])\s*print\s*>>")),
    ("the exec statement", re.compile(r"(^|[:;])\s*exec\s+[^=(\s]")),
    (
        "`except E, name:`",
        re.compile(r"^\s*except\s+[\w.]+\s*,\s*\w+\s*:|^\s*except\s*\(.*\)\s*,\s*\w+\s*:"),
    ),
    ("`raise E, value`", re.compile(r"(^|[:;])\s*raise\s+[\w.]+\s*,")),
    ("`<>`", re.compile(r"<>")),
    ("backquotes", re.compile(r"`[^`]+`")),
    ("a number such as 0777 or 10L", re.compile(r"(?<![\w.])(0\d+|\d+[lL])(?![\w.])")),
    ("ur'text'", re.compile(r"(?<!\w)[uU][rR]['\"]")),
)
TABS = "tabs mixed with spaces"
_MOST_BAD_LINES = 100
_BUILTINS = "basestring execfile long raw_input reduce unichr unicode xrange"
BUILTINS = frozenset(_BUILTINS.split())
_MODULES = """
    BaseHTTPServer ConfigParser Cookie HTMLParser Queue SimpleHTTPServer SocketServer StringIO
    Tkinter UserDict __builtin__ anydbm cPickle cStringIO commands cookielib copy_reg dummy_thread
    exceptions httplib md5 sets sha thread tkMessageBox urllib2 urlparse xmlrpclib
"""
MODULES = frozenset(_MODULES.split())


def python2_syntax(text: str, error: SyntaxError) -> str | None:
    """Return a description of the Python 2 syntax that caused this error.

    Returns None if the line contains no such syntax.
    """
    if isinstance(error, TabError):
        return TABS
    lines = text.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    message = error.msg or ""
    if "call to 'print'" in message or "call to 'exec'" in message:
        return "the exec statement" if "exec" in message else "the print statement"
    return next((name for name, pattern in _SYNTAX if pattern.search(line)), None)


def without_unparsable_lines(text: str) -> str:
    """Return the text with `pass` for each line that Python 3 cannot parse, such as `print x`.

    Tabs mixed with spaces become spaces. If such a line ends with a backslash, the lines that
    continue it become empty, so that line numbers do not change. If a file has too many such lines
    (_MOST_BAD_LINES), its text is returned unchanged.
    """
    lines = text.splitlines()
    for _ in range(_MOST_BAD_LINES):
        try:
            parsed_file.parse_text("\n".join(lines))
        except TabError:
            lines = [line.expandtabs() for line in lines]  # as Python 2 reads them
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or lines[at].strip() == "pass":
                return text
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            end = next((n for n in range(at, len(lines)) if not lines[n].endswith("\\")), at)
            lines[at : end + 1] = [f"{indent}pass", *[""] * (end - at)]
        except ValueError:
            return text
        else:
            return "\n".join(lines)
    return text
