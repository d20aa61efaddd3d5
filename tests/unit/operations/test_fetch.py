"""Test from which host `fetch` copies the `keep` folders.

The run began at 50. The times of checkpoints are in seconds on the host's own clock. `skew` is how
many seconds this clock is ahead of this machine's clock.
"""

from __future__ import annotations

import pytest

from tfdeploy.model.answers.files import FoundFile
from tfdeploy.operations.copy.pull import HostFileList
from tfdeploy.operations.fetch import HostListings, host_of_newest_checkpoint


def seen(record: float | None, file: float | None = None, skew: float = 0.0) -> HostListings:
    files = [FoundFile("c/checkpoint", 1, int(record * 1e9))] if record is not None else []
    files += [FoundFile("c/log", 1, int(file * 1e9))] if file is not None else []
    return HostListings(HostFileList("/r", tuple(files)), None, skew)


@pytest.mark.parametrize(
    ("hosts", "chosen"),
    [
        ({"n1": seen(100), "n2": seen(200)}, "n2"),
        # At its end, the program deleted the newest checkpoint, on n1, and saved a model there. n2
        # still has an old copy of a checkpoint.
        ({"n1": seen(None, 300), "n2": seen(200)}, "n1"),
        ({"n1": seen(100), "n2": seen(None, 900)}, "n1"),
        # If no host has a checkpoint, n1 is chosen: it has the deciding task, whose result is the
        # result of the run.
        ({"n1": seen(None, 100), "n2": seen(None, 900)}, "n1"),
        ({"n2": seen(None, 100), "n3": seen(None, 900)}, "n3"),
        # The clock of n2 is an hour ahead: its checkpoint looks newer by its time, but is not.
        ({"n1": seen(100), "n2": seen(3700, skew=3600)}, "n1"),
        # The checkpoint of n2 is only one second newer, so both checkpoints count as equally new.
        ({"n1": seen(100), "n2": seen(101)}, "n1"),
        ({"n1": seen(101), "n2": seen(100)}, "n1"),
        # The difference is smaller than the error of the clocks, so it does not change the choice.
        ({"n2": seen(101.000), "n3": seen(101.001, skew=0.01)}, "n3"),
        ({"n2": seen(101.000, skew=0.01), "n3": seen(101.001)}, "n3"),
        # n2 has a copy from before the run, and the program deleted the newer checkpoint on n1.
        ({"n1": seen(None), "n2": seen(40)}, None),
        ({"n1": seen(None), "n2": seen(40, 100)}, None),
        ({"n1": seen(40), "n2": seen(45)}, "n1"),
        ({"n1": seen(None), "n2": seen(3640, skew=3600)}, None),
        # n1 did not answer.
        ({"n2": seen(40), "n3": seen(30)}, "n2"),
        ({"n1": seen(None), "n2": seen(None)}, None),
        ({}, None),
    ],
)
def test_host_with_newest_checkpoint_or_deciding_task_is_chosen(
    hosts: dict[str, HostListings], chosen: str | None
) -> None:
    assert host_of_newest_checkpoint(hosts, "n1", 50) == chosen
