"""Read the exceptions in a log: the type and message of each, and the innermost line of the
program's own code in the traceback. Pure.

In a TensorFlow log, a traceback may be followed by other tracebacks of its chain, by tracebacks of
other threads and of finalisers, by the stack at which an operation was created, and by messages of
C++ code.
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import Iterable, List, Optional, Sequence, Tuple
from tfdeploy.agent.metric_lines import ESCAPE, last_progress_state, strip_cpp_message
from tfdeploy.agent.record import NamedTuple

MOST_LINES = 2000  # how many lines at the end of a log are read
# How many lines of one exception's message are read. The message may contain stacks of operations.
_MESSAGE_LINES = 300
_TRACEBACK_HEAD = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'[\s|]*File "([^"]+)", line (\d+)')
# The traceback of a syntax error in the main file begins without _TRACEBACK_HEAD.
_SYNTAX_ERROR = re.compile(r'  File "([^"]+)", line (\d+)$')
_EXCEPTION = re.compile(r"[\s|]*([A-Za-z_][\w.<>]*)(?::(?: (.*))?)?$")
_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
_LIBRARY = re.compile(
    r"^<|/(?:site|dist)-packages/|/lib/python3[\d.]*/|/tfdeploy/runtime/|__autograph_generated_file"
)
_SAYS_NOTHING = re.compile(
    r"\s*$|Graph execution error:|in user code:|Detected at node|Node: '|From /job:\S+:\s*$|\d+ "
    r"root error\(s\) found"
    r"|Exception encountered when calling"
    r"|\s+File |\s{4,}|\t|-- Process \d+ terminated"
)
_ROOT_ERROR = re.compile(r"\s+\(0\) (?:[A-Z][\w ]*: )?(.*)")
_IN_USER_CODE = re.compile(r"\s{4,}([A-Za-z_][\w.]*(?:Error|Exception|Warning)): (.*)")
_MESSAGE_ENDS = (
    "Original stack trace for",
    "Errors may have originated",
    "Additional GRPC error",
    *_LINKS,
)

# Where an exception was raised: in the program, in a thread or in a finaliser. Of several
# exceptions, one with the highest of these numbers explains a failure best.
PROGRAM, THREAD, FINALISER = 2, 1, 0
Frames = List[Tuple[str, str]]  # (file, line), the innermost last


class RaisedException(NamedTuple):
    """One exception. `location`: " (train.py:88)"; "" if no line of the program's own code is
    known. `source`: PROGRAM, THREAD or FINALISER. `chain`: a number that all exceptions of one
    chain share; each of them was raised while the previous one was handled."""

    kind: str
    message: str
    location: str
    source: int
    chain: int


def read_exceptions(text: str, roots: Sequence[str]) -> Iterable[RaisedException]:
    """Yield the exceptions in the order of the log. `roots`: the program's folders, which are cut
    from the front of file names."""
    lines = _program_lines(text)
    number, before, source, chain = 0, "", PROGRAM, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        syntax = _SYNTAX_ERROR.match(line)
        if _TRACEBACK_HEAD not in line and syntax is None:
            before = line if line.strip() else before
            continue
        # torchrun and loggers put a prefix before each line of a traceback.
        prefix = line[: line.index(_TRACEBACK_HEAD)] if syntax is None else ""
        frames = parse_frames([line]) if syntax is not None else []
        if not any(link in before for link in _LINKS):
            source, chain = _classify_source(before), chain + 1
        raised, number = _read_traceback(lines, number, prefix, frames)
        if raised is not None:
            kind, message, message_frames = raised
            yield RaisedException(
                short_name(kind),
                message,
                find_location(frames + message_frames, roots),
                source,
                chain,
            )
        before = ""


def find_location(frames: Sequence[Tuple[str, str]], roots: Sequence[str]) -> str:
    """Return the place of the innermost frame in the program's own code, such as " (train.py:88)".
    Return "" if there is no such frame."""
    for path, line in reversed(frames):
        if not _LIBRARY.search(path):
            names = [path[len(root) + 1 :] for root in roots if path.startswith(root + "/")]
            return " (%s:%s)" % ((names + [path.rsplit("/", 1)[-1]])[0], line)
    return ""


def parse_frames(lines: Iterable[str]) -> Frames:
    """Return the stack frames in these lines of a traceback, in the same order."""
    return [(each.group(1), each.group(2)) for each in map(_FRAME.match, lines) if each]


def short_name(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _program_lines(text: str) -> List[str]:
    """Return the lines without colours and without what TensorFlow's C++ code writes."""
    lines = [ESCAPE.sub("", last_progress_state(line)) for line in text.split("\n")[-MOST_LINES:]]
    stripped = zip(lines, map(strip_cpp_message, lines))  # noqa: B905 - Python 3.8 knows no strict
    return [stripped_line for line, stripped_line in stripped if stripped_line or not line]


def _classify_source(line_before: str) -> int:
    """Return PROGRAM, THREAD or FINALISER, depending on where an exception was raised.
    `line_before`: the last line of the log before the exception's traceback."""
    if line_before.startswith(("Exception ignored", "Error in atexit", "Error in sys.")):
        return FINALISER
    return THREAD if "Exception in thread" in line_before else PROGRAM


def _read_traceback(
    lines: List[str], line_number: int, prefix: str, frames: Frames
) -> Tuple[Optional[Tuple[str, str, Frames]], int]:
    """Read one traceback, and add its frames to `frames`. Return two values: the exception, and the
    number of the line at which reading continues. The exception is (name, message, the frames that
    the message names), or None if the traceback ends without one."""
    while line_number < len(lines) and _TRACEBACK_HEAD not in lines[line_number]:
        text = _strip_prefix(lines[line_number], prefix)
        line_number += 1
        exception = _EXCEPTION.match(text)
        if _FRAME.match(text):
            frames.extend(parse_frames([text]))
        elif exception is not None and exception.group(1) not in _LEVELS and not text[:1].isspace():
            more_lines = [
                _strip_prefix(line, prefix)
                for line in lines[line_number : line_number + _MESSAGE_LINES]
            ]
            return (
                exception.group(1),
                *_read_message(exception.group(2) or "", more_lines),
            ), line_number
    return None, line_number


def _read_message(first: str, lines: List[str]) -> Tuple[str, Frames]:
    """Return the line of an exception's message that says what was wrong, and the stack frames that
    the message contains."""
    if not _SAYS_NOTHING.match(first):
        continues = first.rstrip().endswith(":") and lines and _TRACEBACK_HEAD not in lines[0]
        continuation = lines[0].strip() if continues else ""
        return "%s %s" % (first, continuation) if continuation else first, []
    ends = [line.startswith(_MESSAGE_ENDS) or _TRACEBACK_HEAD in line for line in lines] + [True]
    lines = lines[: ends.index(True)]
    if first.startswith("in user code:"):
        inner = [match.group(2) for match in map(_IN_USER_CODE.match, lines) if match]
        return (inner[-1] if inner else ""), parse_frames(lines)
    for line in lines:
        root = _ROOT_ERROR.match(line)
        if root is not None:
            return root.group(1), []
        if not _SAYS_NOTHING.match(line):
            return line, []
    return first.strip().rstrip(": "), []


def _strip_prefix(line: str, prefix: str) -> str:
    return line[len(prefix) :] if prefix and line.startswith(prefix) else line
