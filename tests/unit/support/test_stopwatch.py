"""Test the Stopwatch on an idle machine, on a busy machine, and on a machine whose kernel does not
report how long processes wait for a CPU.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from support import stopwatch, waiting


class Machine:
    """A clock, and the kernel's report about waiting times. The test sets both."""

    def __init__(self, report: Path) -> None:
        self.report, self.now = report, 1000.0
        self.let_pass(0.0, waited_s=5.0)

    def let_pass(self, elapsed_s: float, *, waited_s: float) -> None:
        """Advance the clock by `elapsed_s` seconds.

        From now on, the kernel reports that, since boot, some process has waited for a CPU for
        `waited_s` seconds in total.
        """
        self.now += elapsed_s
        total = f"total={waited_s * 1e6:.0f}"
        self.report.write_text(
            f"some avg10=1.00 avg60=2.00 avg300=3.00 {total}\nfull avg10=0.00 total=7\n"
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    new_machine = Machine(tmp_path / "cpu")
    monkeypatch.setattr(stopwatch, "PRESSURE", new_machine.report)
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(monotonic=lambda: new_machine.now))
    return new_machine


@pytest.mark.parametrize(
    ("waited_s", "seconds"),
    [(0.0, 8.0), (4.0, 5.0), (8.0, 2.0), (20.0, 2.0)],
    ids=["quiet", "a load half of the time", "a load all the time", "a report that came late"],
)
def test_time_lost_to_load_counts_one_quarter(
    machine: Machine, waited_s: float, seconds: float
) -> None:
    watch = stopwatch.Stopwatch()
    machine.let_pass(8.0, waited_s=5.0 + waited_s)
    assert (watch.elapsed_s, watch.seconds, watch.slowdown) == (8.0, seconds, 8.0 / seconds)


def test_machine_without_kernel_report_counts_as_busy(machine: Machine) -> None:
    machine.report.unlink()
    watch = stopwatch.Stopwatch()
    machine.now += 8.0
    assert watch.seconds == 2.0


def test_wait_ends_at_time_of_stopwatch(machine: Machine) -> None:
    calls = iter(range(100))

    def never() -> bool:
        machine.let_pass(1.0, waited_s=5.0 + next(calls))
        return False

    with pytest.raises(AssertionError, match="not within 2 s: it comes"):
        waiting.wait_for(never, 2.0, "it comes", poll_s=0.0)
    assert next(calls) > 4
