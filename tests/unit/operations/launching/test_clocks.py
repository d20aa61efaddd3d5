"""The run's clock out of readings of the hosts' clocks: (seconds before this machine's, the
reading's error in seconds)."""

from __future__ import annotations

import pytest

from tfdeploy.operations.launching.clocks import Reading, ahead_of_median


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
        # ours is wrong
        (
            {"n1": (90.0, 0.01), "n2": (90.01, 0.01), "n3": (90.0, 0.01)},
            {"n1": 0.0, "n2": 0.0, "n3": 0.0},
        ),
        # an answer that took 4 s says little
        ({"n1": (0.0, 0.01), "n2": (0.3, 2.0)}, {"n1": 0.0, "n2": 0.0}),
    ],
)
def test_clocks_are_held_against_the_middle_one(
    readings: dict[str, tuple[float, float]], ahead: dict[str, float]
) -> None:
    assert ahead_of_median(
        {host: Reading(*each) for host, each in readings.items()}
    ) == pytest.approx(ahead)
