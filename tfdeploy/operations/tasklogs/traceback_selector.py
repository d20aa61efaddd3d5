"""Select lines from the log of one task. A traceback is selected as a whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tfdeploy.model.loglines import HEAD, MOST_LINES, LogLine, TracebackRecogniser

# Lines that report an error: by TensorFlow's C++ code, a logger, the interpreter or a shell.
_ERROR = re.compile(
    rb"^[EF]\d{4} \d\d:\d\d|: [EF] [\w./-]+:\d+\]|^[EF] (?:tensorflow|external)/"
    rb"|\b(?:ERROR|CRITICAL|FATAL)\b|^[\w.]*(?:Error|Exception|Interrupt|Exit)(?:: |$)"
    rb"|^Fatal Python error: |^terminate called |(?:^|: )error: |^(?:Segmentation fault|Aborted)\b"
)
# TensorFlow writes these lines as errors in every attempt, although nothing is wrong. Error 303 of
# CUDA means that the host has no driver, which is normal on a host without GPUs.
_HARMLESS = re.compile(
    rb"Unable to register cu\w+ factory|omputation placer already registered|cuInit.* \(303\)"
)
# If the program's main file has a syntax error, Python prints no line HEAD ("Traceback ..."): the
# report of the error begins with a line of this form.
_SYNTAX_ERROR = re.compile(rb'  File "[^"]+", line \d+$')
Search = Callable[[bytes], object]


class _OpenTraceback:
    """One traceback in one stream. `held`: its lines that are neither selected nor dropped yet."""

    def __init__(self, head: LogLine) -> None:
        self.head, self.traceback = head, TracebackRecogniser(head)
        self.held: list[LogLine] = []
        self.matches = self.excluded = False


class TracebackSelector:
    """Selects single lines and whole tracebacks in which `matches` finds something.

    Lines and tracebacks in which `excluded` finds something are dropped. `errors`: drop all single
    lines (outside tracebacks) that do not report an error.
    """

    def __init__(self, matches: Search | None, excluded: Search | None, *, errors: bool) -> None:
        self._matches, self._excluded, self._errors = matches, excluded, errors
        self._units: dict[str, _OpenTraceback] = {}
        # This function decides whether a single line is selected. Where possible, it is `matches`
        # itself, because that is faster.
        self.selects = matches if matches and not excluded and not errors else self._selects

    def _selects(self, text: bytes) -> object:
        return (
            (not self._errors or (_ERROR.search(text) and not _HARMLESS.search(text)))
            and (self._matches is None or self._matches(text))
            and not (self._excluded and self._excluded(text))
        )

    def is_without_tracebacks(self, batch: list[LogLine]) -> bool:
        """Return True if each line of the batch can be judged without regard to other lines.

        This is so if no line belongs to a traceback and `errors` is False.
        """
        return not (self._errors or self._units or any(HEAD in each.line for each in batch))

    def decide(self, line: LogLine) -> Iterator[tuple[LogLine, object, bool]]:
        """Read one more line. Yield each line that can now be selected or dropped.

        Each result is (line, True if the line is selected, True if it begins a traceback). The
        lines of a traceback are held back until the traceback ends, or until `matches` or
        `excluded` finds something in it.
        """
        unit = self._units.get(line.stream)
        if unit is not None and (
            len(unit.held) >= MOST_LINES or not unit.traceback.accept_next(line)
        ):
            yield from ((each, False, False) for each in unit.held)
            del self._units[line.stream]
            unit = None
        if unit is None:
            if HEAD not in line.line and not (self._errors and _SYNTAX_ERROR.match(line.line)):
                yield line, self.selects(line.line), False
                return
            unit = self._units[line.stream] = _OpenTraceback(line)
            unit.matches = self._matches is None
        unit.held.append(line)
        unit.matches = unit.matches or bool(self._matches and self._matches(line.line))
        unit.excluded = unit.excluded or bool(self._excluded and self._excluded(line.line))
        if unit.excluded or (unit.matches and (unit.traceback.raised or not self._excluded)):
            for each in unit.held:
                yield each, not unit.excluded, each is unit.head
            unit.held.clear()
