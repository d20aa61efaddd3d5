"""Test the output of random texts that a program or a host may send.

A terminal and a browser must get only printable text, newlines and the markup of tfdeploy itself.

The environment variable TFDEPLOY_SOAK_TEXTS sets the number of texts: 2,000 by default, more in
`make soak`. With TFDEPLOY_TEXT_SEED, the same texts are tested again.
"""

from __future__ import annotations

import io
import os
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from rich.console import Console
from unit.ui.report.test_page import Reader, report_of, view_of

from support.dashboard_scenes import PLAN, RUN, event, training
from support.recorded import replay_to_view
from tfdeploy.errors import HostFailed
from tfdeploy.model.events import Event
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.report.run_report import LastLine
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.dashboard.frame import compose_frame
from tfdeploy.ui.logs.log_lines import LinePrinter
from tfdeploy.ui.plain import PlainView
from tfdeploy.ui.report.page import html_text, report_page
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.screen import Screen
from tfdeploy.ui.terminal import Terminal

TEXTS = int(os.environ.get("TFDEPLOY_SOAK_TEXTS", "2000"))
SEED = int(os.environ.get("TFDEPLOY_TEXT_SEED", "0")) or random.randrange(1, 1 << 30)
# The number of texts in a series. One frame of the dashboard and one page of a report show a whole
# series.
SERIES = 100
# Only one in SCREENS series is also drawn as a frame, because it takes longer to draw a frame than
# to make all other checks of a series.
SCREENS = 10

ODD_CHARACTERS = (
    *("\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u2028", "\u0301" * 9, "\ufe0f"),
    *("日本", "🎉", "👩\u200d👩\u200d👧", "ﷺ", "\ue000", "\U000e0041"),
)
PIECES: tuple[bytes, ...] = (
    *(character.encode() for character in ODD_CHARACTERS),
    *(
        b"\x1b",
        b"\x1b[",
        b"\x1b]",
        b"\x1bP",
        b"\x1b_",
        b"\x1b^",
        b"\x1bX",
        b"\x1b\\",
        b"\x1bc",
        b"\x1b(0",
        b"\x1b#8",
    ),
    *(
        b"\x1b[31m",
        b"\x1b[2J",
        b"\x1b[6n",
        b"\x1b[>c",
        b"\x1b[?1049l",
        b"\x1b]0;owned\x07",
        b"\x1b]8;;http://x\x1b\\",
    ),
    *(
        b"\x1b]52;c;cm0gLXJm\x1b\\",
        b"\xc2\x9b31m",
        b"\xc2\x9d52;c;x\xc2\x9c",
        b"\xc2\x90q\xc2\x9c",
        b"\x9b",
        b"\x9d",
        b"\xc2\x85",
    ),
    *(
        b"\x07",
        b"\x08",
        b"\x7f",
        b"\x00",
        b"\r",
        b"\t",
        b"\n",
        b"\x0b",
        b"\x0c",
        b"\x0e",
        b"\x0f",
        b"\x05",
    ),
    *(b";", b"0", b"m", b"?", b" ", b"[", b"]", b"&", b'"', b"'", b"<", b">", b"="),
    *(
        b"<script>alert(1)</script>",
        b"<img src=x onerror=alert(2)>",
        b"</pre>",
        b"</style>",
        b"</title>",
        b"<!--",
        b"-->",
    ),
    *(
        b"]]>",
        b"<svg>",
        b"&lt;",
        b"&#27;",
        b"&#x1b;",
        b"javascript:",
        b"\\u001b",
        b"[/red]",
        b"[bold]",
        b"[link=http://x]",
    ),
    *(
        b"Traceback (most recent call last):",
        b"  File ",
        b"step 12 loss 0.3",
        b"Epoch 3/40",
        b"loss: nan",
        b"step 1e999",
    ),
)
OWN_STYLES = re.compile(r"\x1b\[[0-9;]{0,12}m")
OWN_MOVES = re.compile(r"\x1b\[\d{1,3};1H|\x1b\[K|\x1b\[\?1049[hl]|\x1b\[\?25[hl]|\x1b\[H")


def a_text(chance: random.Random) -> bytes:
    """Return a random text that consists of known attacks, Unicode characters and single bytes.

    Some texts are cut off, possibly in the middle of an escape sequence.
    """
    parts: list[bytes] = []
    for _ in range(chance.randrange(1, 12)):
        kind = chance.random()
        if kind < 0.6:
            parts.append(chance.choice(PIECES))
        elif kind < 0.75:
            parts.append(chr(chance.randrange(0x110000)).encode("utf-8", "surrogatepass"))
        elif kind < 0.9:
            parts.append(chance.randbytes(chance.randrange(1, 5)))
        else:
            parts.append(bytes([chance.randrange(0x20, 0x7F)]) * chance.choice((1, 3, 40, 3000)))
    text = b"".join(parts)
    return text[: chance.randrange(len(text) + 1)] if chance.random() < 0.2 else text


def as_received(text: bytes) -> str:
    """Return the text as it may arrive in JSON from a host: with lone surrogates in place of
    invalid bytes.
    """
    return text.decode("utf-8", "surrogateescape")


def assert_printable(shown: str) -> None:
    bad = {char for char in shown if not char.isprintable() and char != "\n"}
    assert not bad, (bad, shown[:2000])


def assert_escaped(markup: str) -> None:
    assert_printable(markup)
    assert not re.search(r"[<>\"']|&(?!(?:lt|gt|amp|quot|#x27);)", markup), markup[:2000]


def examine(texts: Sequence[bytes], drawn: bool) -> None:
    for text in texts:
        assert_printable(clean(text))
        assert_escaped(html_text(as_received(text)))
    logs(texts, color=False)
    logs(texts, color=True)
    plain(texts)
    if drawn:
        dashboard([as_received(text) for text in texts])
        report([as_received(text) for text in texts])


def logs(texts: Sequence[bytes], *, color: bool) -> None:
    """Check that `tfdeploy logs` prints each line of a task as one line."""
    lines = [
        LogLine(
            time=1000.0 + n,
            task=f"worker:{n % 3}",
            host="n1",
            attempt=1,
            stream="out" if n % 2 else "err",
            line=text.replace(b"\n", b""),
        )
        for n, text in enumerate(texts)
    ]
    with tempfile.TemporaryFile() as file:
        printer = LinePrinter(
            file.fileno(), timestamps=True, color=color, highlight=(re.compile("loss|3.m"),)
        )
        printer.write([line] for line in lines)
        file.seek(0)
        text = file.read().decode()
    if color:
        text = OWN_STYLES.sub("", text)
    assert_printable(text)
    assert text.count("\n") == len(lines), text


def plain(texts: Sequence[bytes]) -> None:
    """Check what `launch` prints without a terminal: messages, errors and lines of tasks."""
    out = io.StringIO()
    view = PlainView(Terminal(out, 80, False), out, verbose=True)
    for text in texts:
        received = as_received(text)
        line = {"line": received, "stream": "out", "offset": 0}
        replay_to_view(
            view, Event(kind="line", time=1.0, run=RUN, host=received, task=received, data=line)
        )
        view(
            Event(
                kind="host",
                time=1.0,
                run=RUN,
                host=received,
                data={"state": "unreachable", "text": received},
            )
        )
        view(
            Event(
                kind="note",
                time=1.0,
                run=RUN,
                host=received,
                data={"text": received, "level": "error"},
            )
        )
    assert_printable(out.getvalue())


def dashboard(texts: Sequence[str]) -> None:
    """Check one frame for each page of the dashboard.

    Each text is used as a log line of a task, as the reason of a task's death, as a message from a
    host and as a filter.
    """
    board = Dashboard(clock=lambda: 40.0, command=lambda words: None)
    board.scene.unicode = True
    for next_event in training():
        replay_to_view(board, next_event)
    for number, text in enumerate(texts):
        task = PLAN.tasks[number % len(PLAN.tasks)]
        replay_to_view(
            board, event("line", 1032.0, task.host, task.task, stream="out", line=text, offset=0)
        )
        board(
            event(
                "host",
                1032.0,
                task.host,
                state="unreachable" if number % 9 == 0 else "connected",
                text=text,
            )
        )
        metrics = {
            "state": "ended",
            "outcome": "failed",
            "exit_code": 1,
            "reason": text,
            "health": "stalled",
            "health_reason": text,
        }
        board(event("task", 1033.0, task.host, task.task, **metrics))
        board(
            Event(
                kind="note",
                time=1033.0,
                run=RUN,
                host=text,
                data={"text": text, "level": "warning"},
            )
        )
    board.apply_events()
    board.ring.record_arrivals(40.0)
    for keys in ((), ("enter",), ("escape", "t"), ("escape", "c"), ("escape", "/", *texts[0][:80])):
        for key in keys:
            board.view.handle_key(key)
        out = io.StringIO()
        console = Console(
            file=out,
            width=100,
            height=40,
            force_terminal=True,
            color_system="256",
            legacy_windows=False,
        )
        with Screen(console) as screen:
            screen.draw(compose_frame(board.scene, 100, 40, 1040.0))
        assert_printable(OWN_MOVES.sub("", OWN_STYLES.sub("", out.getvalue())))


def report(texts: Sequence[str]) -> None:
    shown = page_with(texts)
    assert_printable(shown)
    assert elements(shown) <= elements(page_with([f"x{number}" for number in range(SERIES)]))


def page_with(texts: Sequence[str]) -> str:
    chosen = iter(texts)
    host = replace(PLAN.hosts[0], versions={next(chosen): next(chosen)})
    changed = replace(
        report_of(name=next(chosen), samples=2),
        view=replace(
            view_of(PLAN, "failed", next(chosen)), cause=next(chosen), first_death=next(chosen)
        ),
        plan=replace(PLAN, command=("python", *texts[:20]), operator=next(chosen), hosts=(host,)),
        last_lines=tuple(LastLine(1.0, text) for text in texts),
        errors={text: HostFailed(text) for text in texts[:20]},
    )
    return report_page(changed)


def elements(shown: str) -> set[tuple[str, tuple[str, ...]]]:
    """Return the elements of an HTML page, each with the names of its attributes."""
    return {(tag, tuple(attributes)) for tag, attributes in Reader(shown).seen}


def test_random_text_is_shown_only_as_text() -> None:
    for series in range(TEXTS // SERIES):
        chance = random.Random(SEED << 32 | series)
        texts = [a_text(chance) for _ in range(SERIES)]
        try:
            examine(texts, drawn=series % SCREENS == 0)
        except BaseException as error:
            raise AssertionError(f"TFDEPLOY_TEXT_SEED={SEED}, series {series}") from error


@pytest.mark.parametrize(
    ("draw", "broken"),
    [
        (lambda: assert_printable("a\x1b[31m"), "x1b"),
        (lambda: assert_escaped("a<b"), "a<b"),
        (lambda: assert_escaped("a&#27;"), "#27"),
    ],
)
def test_planted_fault_is_found(draw: Callable[[], None], broken: str) -> None:
    with pytest.raises(AssertionError, match=broken):
        draw()
