"""Test the time limit for opening a session with a host.

Only the time that the host takes is counted. Time in which this process gets no CPU is not counted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from support.waiting import wait_for
from tfdeploy.transport.ssh import connect_timeout
from tfdeploy.transport.ssh.connect_timeout import ConnectionSlots, HostTimeout, time_limit


class FakeLink:
    received = 0
    closed = False

    def close(self) -> None:
        self.closed = True


def test_silent_host_is_given_up_before_one_that_sends_data() -> None:
    silent, talking = HostTimeout(1.0), HostTimeout(1.0)
    silent.link, talking.link = FakeLink(), FakeLink()
    ticks = 0
    while not talking.over:
        talking.link.received += 1
        silent.add_elapsed(0.125)
        talking.add_elapsed(0.125)
        ticks += 1
        assert silent.over == (ticks >= 8)
    assert ticks == 24


def test_abandoned_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_timeout, "TICK_S", 0.01)
    link = FakeLink()
    with time_limit(0.1) as wait:
        wait.link = link
        wait_for(lambda: link.closed, 10, "the silent link is closed")
    assert wait.over


def test_waiting_for_slot_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_timeout, "TICK_S", 0.01)
    slots, timeouts = ConnectionSlots(1), []
    with time_limit(60.0) as first, slots.hold_slot(first):
        first.link = FakeLink()

        def second() -> None:
            with time_limit(0.2) as wait, slots.hold_slot(wait):
                timeouts.append(wait.over)

        thread = threading.Thread(daemon=True, target=second)
        thread.start()
        # The loop lasts for three times the time limit.
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            first.link.received += 1
            thread.join(0.005)
        assert timeouts == []
    thread.join(120)
    assert timeouts == [False]


def test_silent_host_releases_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_timeout, "TICK_S", 0.01)
    monkeypatch.setattr(connect_timeout, "SLOT_S", 0.1)
    slots, got_slot = ConnectionSlots(1), threading.Event()

    def second() -> None:
        with time_limit(60.0) as wait, slots.hold_slot(wait):
            got_slot.set()

    with time_limit(60.0) as first, slots.hold_slot(first):
        threading.Thread(daemon=True, target=second).start()
        assert got_slot.wait(120)
    # The slot was released only once, although two places in the code may release it.
    for _ in range(2):
        with time_limit(60.0) as wait, slots.hold_slot(wait):
            assert not slots._free.acquire(blocking=False)


STOPPED = """
import os, signal, time
from tfdeploy.transport.ssh.connect_timeout import time_limit
with time_limit(1.0) as wait:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.3)
    print(wait.over, flush=True)
"""


def test_time_of_suspended_process_does_not_count() -> None:
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    stopped = time.monotonic()
    wait_for(
        lambda: time.monotonic() - stopped > 2.2, 10, "it was stopped for longer than its patience"
    )
    os.kill(process.pid, signal.SIGCONT)
    output, _ = process.communicate(timeout=120)
    assert output == "False\n"
