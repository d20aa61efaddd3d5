"""Test the plain lines that are printed for events: the text for each kind of event, and which
events are not shown.
"""

from __future__ import annotations

import io
from typing import Any

import pytest

from support.recorded import replay_to_view
from tfdeploy.errors import Refused
from tfdeploy.model.events import Event
from tfdeploy.ui.errors import show_error
from tfdeploy.ui.plain import PlainView
from tfdeploy.ui.terminal import Terminal, terminal_of


def event(kind: Any, host: str | None = None, task: str | None = None, **data: Any) -> Event:
    return Event(
        kind=kind,
        time=1000.0,
        run="digits-1",
        host=host,
        task=task,
        attempt=1 if task else None,
        data=data,
    )


PRINTED = {
    "[n2] code 1.2 MB sent": event(
        "transfer", "n2", what="code", state="done", sent_bytes=1_200_000, total_bytes=1_200_000
    ),
    "[n2] nothing sent: all files were up to date": event(
        "transfer", "n2", what="all", state="done", sent_bytes=0, total_bytes=0
    ),
    "data d: 256 MB to 16 hosts in 45 s (5.7 MB/s); "
    "the slowest link (n3 from n2) allows 5.9 MB/s": event(
        "broadcast",
        what="data d",
        state="done",
        hosts=16,
        total_bytes=256_000_000,
        seconds=45.0,
        slowest={"host": "n3", "parents": ["n2"], "rate": 5_900_000.0},
    ),
    "data d: 5.0 MB to 1 host in 1.0 s (5.0 MB/s)": event(
        "broadcast",
        what="data d",
        state="done",
        hosts=1,
        total_bytes=5_000_000,
        seconds=1.0,
        slowest=None,
    ),
    "worker:0@n2 running pid 4242": event("task", "n2", "worker:0", state="running", pid=4242),
    "worker:0@n2 succeeded": event(
        "task", "n2", "worker:0", state="ended", outcome="succeeded", exit_code=0
    ),
    "worker:0@n2 failed with exit code 3": event(
        "task", "n2", "worker:0", state="ended", outcome="failed", exit_code=3
    ),
    "worker:0@n2 killed: out of memory": event(
        "task", "n2", "worker:0", state="ended", outcome="killed", signal=9, reason="out of memory"
    ),
    "ps:0@n1 stopped: the deciding task succeeded": event(
        "task", "n1", "ps:0", state="ended", outcome="stopped", reason="the deciding task succeeded"
    ),
    "worker:0@n2 starts again: exit code 1": event(
        "task", "n2", "worker:0", attempt=1, state="pending", reason="starts again: exit code 1"
    ),
    "worker:0@n2 stalled: waits for ps:0": event(
        "task",
        "n2",
        "worker:0",
        state="running",
        pid=4242,
        health="stalled",
        health_reason="waits for ps:0",
    ),
    "run digits-1 failed: worker:0 on n2 failed": event(
        "run", state="failed", cause="worker:0 on n2 failed"
    ),
    "[n1] unreachable: no answer in 10 s": event(
        "host", "n1", state="unreachable", text="no answer in 10 s"
    ),
    "warning: a proxy was neutralised": event(
        "note", level="warning", text="a proxy was\x1b[2J neutralised"
    ),
    "[n1] said [/foo]": event("note", "n1", level="info", text="said [/foo]"),
    "sync ...": event("step", step="sync", state="begin"),
    "sync failed": event("step", step="sync", state="failed"),
}
NOT_PRINTED = [
    event("step", step="sync", state="done"),
    event("host", "n1", state="connected"),
    event("transfer", "n2", what="code", state="moving", sent_bytes=1, total_bytes=2),
    event("transfer", "n2", what="all", state="done", sent_bytes=5, total_bytes=5),
    event(
        "broadcast",
        what="data d",
        state="moving",
        stripes=1,
        feeds=[("", "n1", 0)],
        slow=[],
        stuck=[],
    ),
    event("task", "n2", "worker:0", state="pending"),
    event("plan"),
]


def make_view(**options: Any) -> tuple[PlainView, io.StringIO]:
    talk = io.StringIO()
    return PlainView(Terminal(talk, None, False), **options), talk


@pytest.mark.parametrize("text", PRINTED)
def test_each_event_is_one_line_and_printed_once(text: str) -> None:
    plain, talk = make_view()
    plain(PRINTED[text])
    if PRINTED[text].kind != "note":
        plain(PRINTED[text])
    assert talk.getvalue() == text + "\n"


def test_a_cause_is_not_repeated_for_each_task_that_was_stopped() -> None:
    plain, talk = make_view()
    cause = "worker:1 on n3 failed with exit code 1: KeyError"
    for task in ("ps:0", "worker:0"):
        plain(event("task", "n1", task, state="ended", outcome="stopped", reason=cause))
    plain(event("run", state="running", cause=cause))
    plain(event("run", state="failed", cause=cause))
    assert talk.getvalue().splitlines() == [
        f"ps:0@n1 stopped: {cause}",
        "worker:0@n1 stopped",
        f"run digits-1 failed: {cause}",
    ]


def test_unimportant_events_are_not_printed() -> None:
    plain, talk = make_view()
    for silent_event in NOT_PRINTED:
        plain(silent_event)
    assert talk.getvalue() == ""


def test_quiet_prints_only_problems() -> None:
    plain, talk = make_view(quiet=True)
    for printed_event in PRINTED.values():
        plain(printed_event)
    assert talk.getvalue().count("\n") == 8
    assert "sent" not in talk.getvalue()


def test_lines_of_tasks_go_to_given_stream_with_aligned_labels() -> None:
    out = io.StringIO()
    plain, talk = make_view(lines=out)
    replay_to_view(
        plain,
        event("line", "n2", "worker:10", stream="out", line="hello\x1b]0;x\x07\udcff", offset=0),
    )
    replay_to_view(plain, event("line", "n1", "ps:0", stream="out", line="there\r", offset=0))
    assert out.getvalue() == "worker:10@n2 | hello\ufffd\nps:0@n1      | there\n"
    assert talk.getvalue() == ""


def test_colour_only_on_request() -> None:
    assert not terminal_of(io.StringIO(), "auto", {}).color
    assert terminal_of(io.StringIO(), "always", {"NO_COLOR": "1"}).color
    out = io.StringIO()
    replay_to_view(
        PlainView(Terminal(io.StringIO(), None, False), out, color_lines=True),
        event("line", "n1", "ps:0", line="x"),
    )
    assert out.getvalue().startswith("\x1b[")


def test_narrow_encoding_is_no_error() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Terminal(stream, None, False).write("é\n")
    assert raw.getvalue() == b"?\n"


def test_error_has_message_place_and_suggestion() -> None:
    out = io.StringIO()
    show_error(
        Refused("sync failed on 2 hosts:\n  n1: disk\x07 full", where="n1", next="tfdeploy sync"),
        stream=out,
    )
    assert (
        out.getvalue()
        == "error: sync failed on 2 hosts:\n         n1: disk full\n  where: n1\n  next: "
        "tfdeploy sync\n"
    )
    out = io.StringIO()
    show_error(Refused("no"), as_json=True, stream=out)
    assert out.getvalue() == '{"error": {"code": 3, "what": "no", "where": null, "next": null}}\n'


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")]
)
def test_failing_stream_stops_nothing(error: Exception) -> None:
    class Broken(io.StringIO):
        tries = 0

        def write(self, text: str) -> int:
            self.tries += 1
            raise error

    broken, lines = Broken(), io.StringIO()
    view = PlainView(Terminal(broken, None, False), lines)
    view(event("host", "n1", state="unreachable", text="no answer in 10 s"))
    view(event("run", state="failed", cause="worker:0 on n2 failed"))
    replay_to_view(view, event("line", "n2", "worker:0", stream="out", line="step 1", offset=0))
    assert broken.tries == 1
    assert "step 1" in lines.getvalue()
