"""Test how the common clock of a run is computed from readings of the hosts' clocks.

A reading is (how many seconds a host's clock is ahead of this machine's clock, the largest possible
error of this number).
"""

from __future__ import annotations

import pytest

from tfdeploy.operations.launching.clocks import ClockReading, seconds_ahead_of_median


@pytest.mark.parametrize(
    ("readings", "ahead"),
    [
        ({}, {}),
        ({"n1": (7.0, 0.01)}, {"n1": 0.0}),
        (
            {"n1": (0.0, 0.01), "n2": (3.0, 0.01), "n3": (0.004, 0.01)},
            {"n1": 0.0, "n2": 2.996, "n3": 0.0},
        ),
        (
            {"n1": (0.0, 0.01), "n2": (-0.4, 0.01), "n3": (0.0, 0.01)},
            {"n1": 0.0, "n2": -0.4, "n3": 0.0},
        ),
        # Only the clock of this machine is wrong, by 90 s.
        (
            {"n1": (90.0, 0.01), "n2": (90.01, 0.01), "n3": (90.0, 0.01)},
            {"n1": 0.0, "n2": 0.0, "n3": 0.0},
        ),
        # Reading the clock of n2 took 4 s, so the result is too inexact to be used.
        ({"n1": (0.0, 0.01), "n2": (0.3, 2.0)}, {"n1": 0.0, "n2": 0.0}),
    ],
)
def test_clocks_are_compared_with_median(
    readings: dict[str, tuple[float, float]], ahead: dict[str, float]
) -> None:
    assert seconds_ahead_of_median(
        {host: ClockReading(*reading) for host, reading in readings.items()}
    ) == pytest.approx(ahead)
