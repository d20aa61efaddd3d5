"""Why a program ended, in the words that it printed last: the line of its log that a person would quote. Pure, but for `read`.

The line of an exception is hard to see in a log of TensorFlow: a traceback is followed by those of its chain, of other
threads and of finalisers, by the stack of an operation's creation and by messages of C++. And an exception may be only the
consequence of another one: `CancelledError` where the input of a model ran out.
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import Dict, Iterable, List, Optional, Sequence, Tuple
from tfdeploy.agent.log.reader import LogReader
from tfdeploy.agent.metric_lines import CPP_PREFIX, ESCAPE, last_state, program_text
from tfdeploy.agent.record import NamedTuple

READ_BYTES = 1 << 20  # of an attempt's log, its end
MESSAGE_CHARS = 200
_PARSED_LINES = 2000
_MESSAGE_LINES = 300  # of one exception, with the stacks of operations in it
_HEAD = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'[\s|]*File "([^"]+)", line (\d+)')
_SYNTAX = re.compile(r'  File "([^"]+)", line (\d+)$')  # of the main file: a SyntaxError without a head
_RAISED = re.compile(r"[\s|]*([A-Za-z_][\w.<>]*)(?::(?: (.*))?)?$")
_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
_LIBRARY = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python3[\d.]*/|/tfdeploy/runtime/|__autograph_generated_file")
_NOT_QUOTED = re.compile(
    r"\s*$|Graph execution error:|in user code:|Detected at node|Node: '|From /job:\S+:\s*$|\d+ root error\(s\) found"
    r"|Exception encountered when calling"
    r"|\s+File |\s{4,}|\t|-- Process \d+ terminated"
)
_ROOT_ERROR = re.compile(r"\s+\(0\) (?:[A-Z][\w ]*: )?(.*)")
_IN_USER_CODE = re.compile(r"\s{4,}([A-Za-z_][\w.]*(?:Error|Exception|Warning)): (.*)")
_MESSAGE_ENDS = ("Original stack trace for", "Errors may have originated", "Additional GRPC error", *_LINKS)
_REPORTED = re.compile(r"Error reported to Coordinator: <class '([\w.]+)'>, (.*)")
_RAN_OUT = re.compile(r"Your input ran out of data[^.]*")
_STATUS = re.compile(r" is aborting with status: (?!CANCELLED|OUT_OF_RANGE|ABORTED|UNAVAILABLE)([A-Z_]+): (.*)")
_ABORTED = re.compile(
    r"terminate called .*|(?:free|malloc|realloc)\(\): .*|double free or corruption.*|corrupted (?:size|double).*"
    r"|\S.*Assertion `.*' failed.*"
    r"|\*\*\* stack smashing detected.*"
)
_WITH_WORDS = (1, 2, 126, 127)  # exit codes of `sys.exit("...")`, of Python and of shells, after a line about why
_FATAL = re.compile(r"(?:^|: )F[ \d]")
_NOISE = re.compile(r"\s|\W*$|.*\b(?:DEBUG|INFO|WARNING|WARN|\w*Warning)\b|\[?[IW]\d{4} |.*\d%\|")
_USAGE = re.compile(r"\S+(?: \S+)?: error: .+|FATAL Flags parsing error: .+")  # of argparse, and of absl

# Consequences of what another thread, task or process did. Where something else was printed too, that is the cause.
_CONSEQUENCES = """CancelledError OutOfRangeError AbortedError UnavailableError KeyboardInterrupt BrokenPipeError EOFError
    Empty ConnectionResetError ConnectionRefusedError SystemExit"""
# What may be gone at the next start: other tasks and processes, the network, memory and disks.
_MAY_PASS = """DeadlineExceededError FailedPreconditionError InternalError UnknownError DataLossError ResourceExhaustedError
    MemoryError OutOfMemoryError TimeoutError ConnectionError ConnectionAbortedError OSError IOError BlockingIOError
    InterruptedError URLError HTTPError SSLError gaierror timeout ProxyError ConnectTimeout ReadTimeout DistNetworkError
    DistStoreError DistBackendError RpcError XlaRuntimeError BrokenBarrierError BrokenProcessPool RemoteDisconnected"""
_FOLLOWS = frozenset(_CONSEQUENCES.split())
# Mistakes in the program, whatever their message names.
_MISTAKES = """AttributeError NameError UnboundLocalError TypeError ImportError ModuleNotFoundError SyntaxError
    IndentationError TabError NotImplementedError"""
_FAULTS = frozenset(_MISTAKES.split())
_PASSING = _FOLLOWS | frozenset(_MAY_PASS.split())
_PASSING_TEXT = re.compile(
    r"(?i)connect|time[d -]?\s?out|unreachable|rendezvous|broken pipe|nccl|gloo|socket|address already in use|temporar"
    r"|no space left|memory|exhausted|unavailable|heartbeat|deadline|cancel|abort|too many open files|cuda error|cudnn|cublas"
    r"|uninitialized|not known|grpc|input/output error|stale file|barrier|\bpeer\b|lock(?:ed)?\b"
)


class LastWords(NamedTuple):
    """`words`: "TypeError: only integers (train.py:88)". `error`: the same exception at the same line has the same; "" where
    it is no exception in the program's own code, or one that the next start may not meet."""

    words: str
    error: str = ""


class _Raised(NamedTuple):
    """One exception in a log. `rank`: 2 of the program, 1 of a thread of it, 0 of a finaliser. `chain`: equal in those that were
    raised while another one was handled."""

    kind: str
    message: str
    at: str
    rank: int
    chain: int


def read(task_dir: str, said_bytes: int) -> Tuple[str, str]:
    """What an attempt wrote last into its log, up to READ_BYTES: its standard output, its standard error."""
    reader = LogReader(task_dir)
    reader.offset = max(0, reader.end() - min(said_bytes, READ_BYTES))
    texts: Dict[int, List[bytes]] = {0: [], 1: []}
    try:
        for piece in iter(reader.read, None):
            begins = [int(record[0]) for record in piece.records] + [len(piece.blob)]
            for number, record in enumerate(piece.records):
                texts[int(record[2])].append(piece.blob[begins[number] : begins[number + 1]])
    finally:
        reader.close()
    out, err = (b"".join(texts[stream]).decode("utf-8", "replace") for stream in (0, 1))
    return out, err


def of_exit(out: str, err: str, roots: Sequence[str] = (), exit_code: Optional[int] = 1) -> Optional[LastWords]:
    """The words of a program that ended itself with a failure. `roots`: folders of the program, left out of file names."""
    usage = _usage(err)
    if usage is not None:
        return LastWords(_cut(usage), usage)
    quoted = _quoted(err, roots) or _quoted(out, roots) or of_crash(err, roots)
    last = _last_line(err) if quoted is None and exit_code in _WITH_WORDS else ""
    return LastWords(_cut(last)) if last else quoted


def of_crash(err: str, roots: Sequence[str] = ()) -> Optional[LastWords]:
    """The words of a program that a fault of its own killed: a failed check of C++, or what faulthandler printed."""
    found: Optional[str] = None
    lines = err.split("\n")[-_PARSED_LINES:]
    for number, line in enumerate(lines):
        prefix = CPP_PREFIX.search(line)
        if prefix is not None:
            found = line[prefix.end() :] if _FATAL.search(prefix.group()) else found
        elif line.startswith("Fatal Python error: "):
            frames = [_FRAME.match(each) for each in lines[number + 1 : number + _MESSAGE_LINES]]
            found = line[20:] + _place([(each.group(1), each.group(2)) for each in frames if each][::-1], roots)
        elif _ABORTED.match(line):
            what = lines[number + 1].strip() if line.startswith("terminate") and number + 1 < len(lines) else ""
            found = "%s, %s" % (line, what) if what.startswith("what()") else line
    return None if not found else LastWords(_cut(found.strip()))


def _usage(err: str) -> Optional[str]:
    """What was wrong with the program's arguments, where that is the last that it said."""
    lines = [line.strip() for line in err[-4096:].split("\n") if line.strip() and not line.startswith("Pass --help")]
    if len(lines) > 1 and lines[-2] == "FATAL Flags parsing error:":
        return "%s %s" % (lines[-2], lines[-1])
    return lines[-1] if lines and _USAGE.match(lines[-1]) else None


def _quoted(text: str, roots: Sequence[str]) -> Optional[LastWords]:
    found = list(_exceptions(_lines(text), roots))
    rank = max((each.rank for each in found), default=0)
    last = next((each for each in reversed(found) if each.rank == rank), None)
    if last is not None and last.kind in _FOLLOWS:
        last = _cause(last, found, text.split("\n")[-_PARSED_LINES:])
    elif last is None:
        return None
    return LastWords(_in_words(last), "" if _may_pass(last) or not last.at else (last.kind or last.message) + last.at)


def _cause(last: _Raised, found: List[_Raised], lines: List[str]) -> _Raised:
    """What led to an exception that only follows from another one; itself where nothing else was printed."""
    ran_out = [match.group() for match in map(_RAN_OUT.search, lines) if match]
    if ran_out:
        return last._replace(kind="", message=ran_out[-1])
    failures = [match.groups() for match in map(_STATUS.search, lines) if match]
    others = [each for each in found if each.rank == 1 or each.chain == last.chain]
    others += [_Raised(_short(name), text, "", 1, 0) for name, text in _reported(lines)]
    others += [last._replace(kind=kind, message=text) for kind, text in failures[:1]]
    return next((each for each in others if each.kind not in _FOLLOWS), last)


def _reported(lines: Iterable[str]) -> List[Tuple[str, str]]:
    return [(match.group(1), match.group(2)) for match in map(_REPORTED.search, lines) if match]


def _may_pass(raised: _Raised) -> bool:
    told = raised.kind not in _FAULTS and _PASSING_TEXT.search(raised.message) is not None
    return raised.kind in _PASSING or told


def _in_words(raised: _Raised) -> str:
    named = [part for part in (raised.kind, raised.message) if part]
    return _cut(": ".join(named)) + raised.at


def _exceptions(lines: List[str], roots: Sequence[str]) -> Iterable[_Raised]:
    number, before, rank, chain = 0, "", 2, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        syntax = _SYNTAX.match(line)
        if _HEAD not in line and syntax is None:
            before = line if line.strip() else before
            continue
        mark = line[: line.index(_HEAD)] if syntax is None else ""  # of a rank of torchrun, a logger, ...
        frames = [] if syntax is None else [(syntax.group(1), syntax.group(2))]
        if not any(link in before for link in _LINKS):
            rank, chain = _rank(before), chain + 1
        raised, number = _read_one(lines, number, mark, frames)
        if raised is not None:
            kind, message, more = raised
            yield _Raised(_short(kind), message, _place(frames + more, roots), rank, chain)
        before = ""


def _read_one(
    lines: List[str], number: int, mark: str, frames: List[Tuple[str, str]]
) -> Tuple[Optional[Tuple[str, str, List[Tuple[str, str]]]], int]:
    """Adds to `frames`. Returns the name of the exception, its message and the frames in that, and where reading goes on."""
    while number < len(lines) and _HEAD not in lines[number]:
        text = _without(lines[number], mark)
        number += 1
        frame, raised = _FRAME.match(text), _RAISED.match(text)
        if frame is not None:
            frames.append((frame.group(1), frame.group(2)))
        elif raised is not None and raised.group(1) not in _LEVELS and not text[:1].isspace():
            rest = [_without(line, mark) for line in lines[number : number + _MESSAGE_LINES]]
            return (raised.group(1), *_message(raised.group(2) or "", rest)), number
    return None, number


def _message(first: str, rest: List[str]) -> Tuple[str, List[Tuple[str, str]]]:
    """The line of a message that tells what was wrong, and the frames of the program that it names."""
    if not _NOT_QUOTED.match(first):
        more = rest[0].strip() if first.rstrip().endswith(":") and rest and _HEAD not in rest[0] else ""
        return "%s %s" % (first, more) if more else first, []
    ends = [number for number, line in enumerate(rest) if line.startswith(_MESSAGE_ENDS) or _HEAD in line]
    rest = rest[: min(ends, default=len(rest))]
    if first.startswith("in user code:"):
        inner = [match for match in map(_IN_USER_CODE.match, rest) if match]
        frames = [match for match in map(_FRAME.match, rest) if match]
        return (inner[-1].group(2) if inner else ""), [(each.group(1), each.group(2)) for each in frames]
    for line in rest:
        root = _ROOT_ERROR.match(line)
        if root is not None:
            return root.group(1), []
        if not _NOT_QUOTED.match(line):
            return line, []
    return ("" if not first.strip() else first.rstrip(": ")), []


def _rank(before: str) -> int:
    if before.startswith(("Exception ignored", "Error in atexit", "Error in sys.")):
        return 0
    return 1 if "Exception in thread" in before else 2


def _place(frames: Sequence[Tuple[str, str]], roots: Sequence[str]) -> str:
    """ " (train.py:88)": the innermost line of the program's own code; "" where there is none."""
    for path, line in reversed(frames):
        if not _LIBRARY.search(path):
            for root in roots:
                if path.startswith(root + "/"):
                    return " (%s:%s)" % (path[len(root) + 1 :], line)
            return " (%s:%s)" % (path.rsplit("/", 1)[-1], line)
    return ""


def _last_line(err: str) -> str:
    """The last line of all, as `sys.exit` prints it; "" where it may be a library's."""
    lines = [line for line in err[-4096:].split("\n") if line.strip()]
    advice = len(lines) > 1 and lines[-2].startswith("Instructions for updating")  # of a deprecated name
    last = last_state(lines[-1]) if lines and not advice else ""
    return "" if _NOISE.match(last) or CPP_PREFIX.search(last) else last.strip()


def _lines(text: str) -> List[str]:
    """Without colours and without what TensorFlow's C++ code writes."""
    lines = [ESCAPE.sub("", last_state(line)) for line in text.split("\n")[-_PARSED_LINES:]]
    return [own for own, line in ((program_text(line), line) for line in lines) if own or not line]


def _without(line: str, mark: str) -> str:
    return line[len(mark) :] if mark and line.startswith(mark) else line


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 3] + "..."
