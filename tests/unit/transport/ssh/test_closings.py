"""Test what tfdeploy concludes from the first bytes that an sshd sends before it closes the
connection, and for how long tfdeploy retries a host.
"""

from __future__ import annotations

import pytest

from tfdeploy.transport.ssh import closings
from tfdeploy.transport.ssh.closings import (
    CROWDED,
    HELD_OFF,
    INTERRUPTED,
    SILENT,
    UNANSWERED,
    EarlyClosing,
)
from tfdeploy.transport.ssh.patience import NOTICE_S, RetrySchedule


@pytest.mark.parametrize(
    ("greeting", "closing"),
    [
        (b"Not allowed at this time\r\n", HELD_OFF),
        (b"Exceeded MaxStartups\r\n", CROWDED),
        (b"", SILENT),
        (b"SSH-2.0-OpenSSH_10.0\r\n", INTERRUPTED),
        (b"HTTP/1.0 400 Bad Request\r\n", None),
    ],
)
def test_first_bytes_show_how_sshd_refused_connection(
    greeting: bytes, closing: EarlyClosing | None
) -> None:
    assert closings.find_closing_cause(greeting) is closing


@pytest.mark.parametrize("closing", [HELD_OFF, CROWDED, SILENT, INTERRUPTED, UNANSWERED])
def test_host_is_retried_while_waiting_may_help(
    closing: EarlyClosing, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, reports = [0.0], []
    monkeypatch.setattr("tfdeploy.transport.ssh.patience.time.monotonic", lambda: now[0])
    patience = RetrySchedule(reports.append)
    tries = 0
    while (delay_s := patience.delay_s(closing)) is not None:
        assert 0.1 <= delay_s <= 2.4
        now[0] += delay_s
        tries += 1
    assert closing.patience_s <= patience.waited_s < closing.patience_s + 2.4
    assert bool(tries) == bool(closing.patience_s)
    assert len(reports) == bool(closing.notice)
    assert patience.waited_s < NOTICE_S or not reports or f"{closing.patience_s:g} s" in reports[0]


def test_short_burst_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reports = [0.0], []
    monkeypatch.setattr("tfdeploy.transport.ssh.patience.time.monotonic", lambda: now[0])
    patience = RetrySchedule(reports.append)
    for now[0] in (0.0, 0.5, 1.0, 1.9):
        assert patience.delay_s(HELD_OFF) is not None
    assert reports == []
    now[0] = 2.1
    patience.delay_s(HELD_OFF)
    assert len(reports) == 1 and "refuses this address for some time" in reports[0]
