"""Find the line of a program's log that best explains why the program ended. Only `read_output_end`
reads files. The other functions take text.

An exception in the log may only be a consequence of an earlier problem. For example, a
`CancelledError` may only mean that the input of a model ran out.
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import FrozenSet, List, Optional, Sequence, Tuple
from tfdeploy.agent.log import tracebacks
from tfdeploy.agent.log.reader import LogReader
from tfdeploy.agent.log.tracebacks import THREAD, RaisedException
from tfdeploy.agent.metric_lines import CPP_PREFIX, last_progress_state
from tfdeploy.agent.record import NamedTuple

READ_BYTES = 1 << 20  # how many bytes at the end of an attempt's log are read
MESSAGE_CHARS = 200
_STACK_LINES = 300  # how many lines of a stack that faulthandler printed are read
_REPORTED = re.compile(r"Error reported to Coordinator: <class '([\w.]+)'>, (.*)")
_RAN_OUT = re.compile(r"Your input ran out of data[^.]*")
_STATUS = re.compile(
    r" is aborting with status: (?!CANCELLED|OUT_OF_RANGE|ABORTED|UNAVAILABLE)([A-Z_]+): (.*)"
)
_ABORTED = re.compile(
    r"terminate called .*|(?:free|malloc|realloc)\(\): .*|double free or corruption.*|corrupted "
    r"(?:size|double).*"
    r"|\S.*Assertion `.*' failed.*"
    r"|\*\*\* stack smashing detected.*"
)
# The exit codes of `sys.exit("...")`, and those with which Python and shells report an error. If a
# program exits with one of them, the last line of its log says what was wrong.
_EXPLAINED_EXITS = (1, 2, 126, 127)
_FATAL = re.compile(r"(?:^|: )F[ \d]")
_NOISE = re.compile(r"\s|\W*$|.*\b(?:DEBUG|INFO|WARNING|WARN|\w*Warning)\b|\[?[IW]\d{4} |.*\d%\|")
# What argparse and absl print if the arguments of a program are wrong.
_USAGE = re.compile(r"\S+(?: \S+)?: error: .+|FATAL Flags parsing error: .+")
# make's last lines if a recipe fails. The recipe's own output before these lines says why.
_MAKE = re.compile(
    r"^g?make(?:\[\d+\])?: \*\*\* (?:\[.*\] Error \d+|Waiting for unfinished jobs\.+)\n?",
    re.MULTILINE,
)


def _split_names(names: str) -> FrozenSet[str]:
    return frozenset(names.split())


# torchrun raises ChildFailedError if a process that it started fails. If the log has another
# exception, that one is the cause.
_CHILD_FAILED = "ChildFailedError"
# These exceptions are mere consequences of something that happened in another thread, task or
# process. If an exception that is not listed here was printed too, it is the cause.
_CONSEQUENCES = _split_names(
    """CancelledError OutOfRangeError AbortedError UnavailableError KeyboardInterrupt
    BrokenPipeError EOFError Empty ConnectionResetError ConnectionRefusedError SystemExit"""
)
# A restart may help against these exceptions, because they depend on other tasks and processes, the
# network, memory or disks.
_PASSING = _CONSEQUENCES | _split_names(
    """DeadlineExceededError FailedPreconditionError InternalError UnknownError DataLossError
    ResourceExhaustedError MemoryError OutOfMemoryError TimeoutError ConnectionError
    ConnectionAbortedError OSError IOError BlockingIOError InterruptedError URLError HTTPError
    SSLError gaierror timeout ProxyError ConnectTimeout ReadTimeout DistNetworkError DistStoreError
    DistBackendError RpcError XlaRuntimeError BrokenBarrierError BrokenProcessPool
    RemoteDisconnected"""
)
_PASSING_TEXT = re.compile(
    r"(?i)connect|time[d -]?\s?out|unreachable|rendezvous|broken pipe|nccl|gloo|socket|address "
    r"already in use|temporar"
    r"|no space left|memory|exhausted|unavailable|heartbeat|deadline|cancel|abort|too many open "
    r"files|cuda error|cudnn|cublas"
    r"|uninitialized|not known|grpc|input/output error|stale file|barrier|\bpeer\b|lock(?:ed)?\b"
)
# These exceptions are always mistakes in the program, even if their message matches _PASSING_TEXT.
_MISTAKES = _split_names(
    """AttributeError NameError UnboundLocalError TypeError ImportError ModuleNotFoundError
    SyntaxError IndentationError TabError NotImplementedError"""
)


class FailureReason(NamedTuple):
    """Why a program ended.

    `text`: the reason, such as "TypeError: only integers (train.py:88)".
    `error`: a text that is equal whenever the program fails in the same way. It is "" if a restart
    may help, or if it is unknown which line of the program's own code has failed.
    """

    text: str
    error: str = ""


def read_output_end(task_dir: str, written_bytes: int) -> Tuple[str, str]:
    """Return the ends of an attempt's standard output and of its standard error, at most READ_BYTES
    together. `written_bytes`: how many bytes the attempt has written in all."""
    reader = LogReader(task_dir)
    reader.offset = max(0, reader.end() - min(written_bytes, READ_BYTES))
    texts: Tuple[List[bytes], List[bytes]] = ([], [])
    try:
        for piece in iter(reader.read, None):
            begins = [int(record[0]) for record in piece.records] + [len(piece.blob)]
            for number, record in enumerate(piece.records):
                texts[int(record[2])].append(piece.blob[begins[number] : begins[number + 1]])
    finally:
        reader.close()
    out, err = (b"".join(pieces).decode("utf-8", "replace") for pieces in texts)
    return out, err


def explain_exit(
    out: str, err: str, roots: Sequence[str] = (), exit_code: Optional[int] = 1
) -> Optional[FailureReason]:
    """Return why a program exited with a failure, or None if its output does not say. `roots`: the
    program's folders. File names below them are shown without the folder."""
    whole_err, err = err, _MAKE.sub("", err)
    usage = _find_usage_error(err)
    if usage is not None:
        return FailureReason(_shorten(usage), usage)
    reason = (
        _explain_exception(err, roots)
        or _explain_exception(out, roots)
        or explain_crash(err, roots)
    )
    last = _last_line(err) or _last_line(whole_err)
    if reason is None and exit_code in _EXPLAINED_EXITS and last:
        return FailureReason(_shorten(last))
    return reason


def explain_crash(err: str, roots: Sequence[str]) -> Optional[FailureReason]:
    """Return what a program printed when it crashed: the message of a failed check in C++ code, or
    the first line and place of faulthandler's output. Return None if it printed neither."""
    message = ""
    lines = err.split("\n")[-tracebacks.MOST_LINES :]
    for number, line in enumerate(lines):
        prefix = CPP_PREFIX.search(line)
        if prefix is not None:
            message = line[prefix.end() :] if _FATAL.search(prefix.group()) else message
        elif line.startswith("Fatal Python error: "):
            frames = tracebacks.parse_frames(lines[number + 1 : number + _STACK_LINES])
            message = line[20:] + tracebacks.find_location(frames[::-1], roots)
        elif _ABORTED.match(line):
            message = line
            following = "".join(lines[number + 1 : number + 2]).strip()
            if line.startswith("terminate") and following.startswith("what()"):
                message += ", " + following
    return FailureReason(_shorten(message.strip())) if message else None


def _find_usage_error(err: str) -> Optional[str]:
    """Return the message with which a program rejects its arguments. Return None if the output does
    not end with such a message."""
    lines = [
        line.strip()
        for line in err[-4096:].split("\n")
        if line.strip() and not line.startswith("Pass --help")
    ]
    if len(lines) > 1 and lines[-2] == "FATAL Flags parsing error:":
        return "%s %s" % (lines[-2], lines[-1])
    return lines[-1] if lines and _USAGE.match(lines[-1]) else None


def _explain_exception(text: str, roots: Sequence[str]) -> Optional[FailureReason]:
    """Return the exception that explains a failure best, or None if the text shows no exception.
    Exceptions of the main program come first, then those of other threads, then those of
    finalisers. Of several exceptions of the same kind, the last one is chosen. If it is only a
    consequence of another exception, that other exception is returned instead. torchrun's own
    exception counts only if the rank that failed first, which it names, has printed no other.
    Exceptions of other ranks are left out."""
    exceptions = list(tracebacks.read_exceptions(text, roots))
    verdict = "".join([each.message for each in exceptions if each.kind == _CHILD_FAILED][-1:])
    ranks = ("", *re.findall(r"^rank (\d+) ended", verdict))
    exceptions = [
        each
        for each in exceptions
        if each.kind != _CHILD_FAILED and (each.rank in ranks or not ranks[1:])
    ]
    if not exceptions:
        return FailureReason(_shorten(verdict)) if verdict else None
    source = max(each.source for each in exceptions)
    last = [each for each in exceptions if each.source == source][-1]
    if last.kind in _CONSEQUENCES:
        last = _find_cause(last, exceptions, text.split("\n")[-tracebacks.MOST_LINES :])
    line = _shorten(": ".join(part for part in (last.kind, last.message) if part)) + last.location
    repeats = last.location and not _may_vanish_on_restart(last)
    return FailureReason(line, (last.kind or last.message) + last.location if repeats else "")


def _find_cause(
    last: RaisedException, exceptions: List[RaisedException], lines: List[str]
) -> RaisedException:
    """Return the exception that led to `last`, which is only a consequence. Return `last` itself if
    no other exception was printed."""
    ran_out = [match.group() for match in map(_RAN_OUT.search, lines) if match]
    if ran_out:
        return last._replace(kind="", message=ran_out[-1])
    reported = [match.groups() for match in map(_REPORTED.search, lines) if match]
    failed = [match.groups() for match in map(_STATUS.search, lines) if match]
    others = [each for each in exceptions if each.source == THREAD or each.chain == last.chain]
    others += [
        RaisedException(tracebacks.short_name(kind), text, "", THREAD, 0) for kind, text in reported
    ]
    others += [last._replace(kind=kind, message=text) for kind, text in failed[:1]]
    return next((each for each in others if each.kind not in _CONSEQUENCES), last)


def _may_vanish_on_restart(raised: RaisedException) -> bool:
    """Return True if the exception may not occur again after a restart."""
    return raised.kind in _PASSING or (
        raised.kind not in _MISTAKES and _PASSING_TEXT.search(raised.message) is not None
    )


def _last_line(err: str) -> str:
    """Return the last line of standard error, because it may be the text of `sys.exit("...")`.
    Return "" if it looks like a line that a library has printed."""
    lines = [line for line in err[-4096:].split("\n") if line.strip()]
    # TensorFlow's advice about a deprecated name has two lines. The second is not an error message.
    advice = len(lines) > 1 and lines[-2].startswith("Instructions for updating")
    last = last_progress_state(lines[-1]) if lines and not advice else ""
    return "" if _NOISE.match(last) or CPP_PREFIX.search(last) else last.strip()


def _shorten(text: str) -> str:
    """Return at most MESSAGE_CHARS characters of the text. What is left out is in the middle,
    because the end of the text may say what to do."""
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 75] + " ... " + text[-70:]
