"""Read the exceptions in a log. Each has a type, a message, and the innermost line of the program's
own code in its traceback. The functions have no side effects.

In the log of a TensorFlow program, a traceback is often followed by other tracebacks: those of
exceptions that were raised while the first was handled, of other threads, and of finalisers. The
stack at which an operation was created and messages of C++ code may follow too.
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import Iterable, List, Optional, Sequence, Tuple
from tfdeploy.agent.metric_lines import ESCAPE, last_progress_state, strip_cpp_message
from tfdeploy.agent.record import NamedTuple

MOST_LINES = 2000  # how many lines at the end of a log are read
# At most this many lines of an exception's message are read. The limit is high, because a message
# may contain stacks of operations, or seven lines for each process of torchrun.
_MESSAGE_LINES = 1000
_TRACEBACK_HEAD = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'[\s|]*File "([^"]+)", line (\d+)')
# If the main file has a syntax error, Python does not print _TRACEBACK_HEAD, but begins with this
# line.
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
    r"|={5,}$|\s+File |\s{4,}|\t|-- Process \d+ terminated"
)
_ROOT_ERROR = re.compile(r"\s+\(0\) (?:[A-Z][\w ]*: )?(.*)")
# torchrun's message, up to the process that failed first. The groups are its rank, exit code and
# signal. Before it, the message may contain tracebacks of other processes.
_ROOT_CAUSE = re.compile(
    r"(?s)={5,}\n.*?\nRoot Cause .*?\n  rank +: (\d+).*?\n  exitcode +: (-?\d+) \(pid: \d+\) *"
    r"(\(SIG\w+\))?"
)
_RANK = re.compile(r"\[rank(\d+)\]")  # PyTorch puts it before each line of a traceback
_IN_USER_CODE = re.compile(r"\s{4,}([A-Za-z_][\w.]*(?:Error|Exception|Warning)): (.*)")
_MESSAGE_ENDS = (
    "Original stack trace for",
    "Errors may have originated",
    "Additional GRPC error",
    *_LINKS,
)

# Where an exception was raised: in the main program, in another thread or in a finaliser. An
# exception with a higher number explains a failure better.
PROGRAM, THREAD, FINALISER = 2, 1, 0
Frames = List[Tuple[str, str]]  # (file, line number) of each frame; the innermost frame is last


class RaisedException(NamedTuple):
    """One exception in a log.

    `location`: the line of the program's own code, such as " (train.py:88)", or "" if it is
    unknown.
    `source`: PROGRAM, THREAD or FINALISER.
    `chain`: the number of a chain of exceptions. Each exception of a chain was raised while the
    previous one was handled.
    `rank`: the rank of the process, or "" if the log does not name it.
    """

    kind: str
    message: str
    location: str
    source: int
    chain: int
    rank: str = ""


def read_exceptions(text: str, roots: Sequence[str]) -> Iterable[RaisedException]:
    """Yield the exceptions in the order in which they are in the log. `roots`: the program's
    folders. File names below them are returned without the folder."""
    lines = _program_lines(text)
    number, before, source, chain = 0, "", PROGRAM, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        syntax = _SYNTAX_ERROR.match(line)
        if _TRACEBACK_HEAD not in line and syntax is None:
            before = line if line.strip() else before
            continue
        # torchrun and loggers put a prefix before each line of a traceback, such as the name of the
        # process.
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
                "".join(_RANK.findall(prefix)[:1]),
            )
        before = ""


def find_location(frames: Sequence[Tuple[str, str]], roots: Sequence[str]) -> str:
    """Return the innermost frame in the program's own code, in the form " (train.py:88)". Return ""
    if there is no such frame. `roots`: as for read_exceptions."""
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
    """Return the lines without colours and without messages of TensorFlow's C++ code. Lines that
    contain nothing but such a message are left out."""
    lines = [ESCAPE.sub("", last_progress_state(line)) for line in text.split("\n")[-MOST_LINES:]]
    stripped = zip(lines, map(strip_cpp_message, lines))  # noqa: B905 - Python 3.8 knows no strict
    return [stripped_line for line, stripped_line in stripped if stripped_line or not line]


def _classify_source(line_before: str) -> int:
    """Return where an exception was raised: PROGRAM, THREAD or FINALISER. `line_before`: the line
    before the exception's traceback, which says so."""
    if line_before.startswith(("Exception ignored", "Error in atexit", "Error in sys.")):
        return FINALISER
    return THREAD if "Exception in thread" in line_before else PROGRAM


def _read_traceback(
    lines: List[str], line_number: int, prefix: str, frames: Frames
) -> Tuple[Optional[Tuple[str, str, Frames]], int]:
    """Read the traceback that begins before `line_number`, and add its frames to `frames`. Return
    (exception, the number of the line after it). The exception is (name, message, the frames in the
    message). It is None if the traceback ends without an exception."""
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
    """Return (the line of an exception's message that says what was wrong, the stack frames in the
    message). `first`: the first line of the message, which often says nothing."""
    if not _SAYS_NOTHING.match(first):
        continues = first.rstrip().endswith(":") and lines and _TRACEBACK_HEAD not in lines[0]
        continuation = lines[0].strip() if continues else ""
        return "%s %s" % (first, continuation) if continuation else first, []
    cause = _ROOT_CAUSE.match("\n".join(lines))
    if cause is not None:
        return ("rank %s ended with exit code %s %s" % cause.groups("")).rstrip(), []
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
