"""Which host's keep is fetched. Times in seconds of each host's own clock; skew is host minus
here."""

from __future__ import annotations

import pytest

from tfdeploy.model.answers.listing import FoundFile
from tfdeploy.operations.copy.pull import Listing
from tfdeploy.operations.fetch import HostListings, newest_host


def seen(record: float | None, file: float | None = None, skew: float = 0.0) -> HostListings:
    files = [FoundFile("c/checkpoint", 1, int(record * 1e9))] if record is not None else []
    files += [FoundFile("c/log", 1, int(file * 1e9))] if file is not None else []
    return HostListings(Listing("/r", tuple(files)), None, skew)


@pytest.mark.parametrize(
    ("hosts", "chosen"),
    [
        ({"n1": seen(100), "n2": seen(200)}, "n2"),
        ({"n1": seen(100), "n2": seen(None, 900)}, "n1"),
        # the deciding task's, where there is no checkpoint
        ({"n1": seen(None, 100), "n2": seen(None, 900)}, "n1"),
        ({"n2": seen(None, 100), "n3": seen(None, 900)}, "n3"),
        ({"n1": seen(100), "n2": seen(3700, skew=3600)}, "n1"),  # its clock is an hour ahead
        ({"n1": seen(100), "n2": seen(101)}, "n1"),  # as good as equal
        ({"n1": seen(101), "n2": seen(100)}, "n1"),
        # whatever the noise of the clocks
        ({"n2": seen(101.000), "n3": seen(101.001, skew=0.01)}, "n3"),
        ({"n2": seen(101.000, skew=0.01), "n3": seen(101.001)}, "n3"),
        ({"n1": seen(None), "n2": seen(None)}, None),
        ({}, None),
    ],
)
def test_the_newest_checkpoint_decides_then_the_deciding_task_s_host(
    hosts: dict[str, HostListings], chosen: str | None
) -> None:
    assert newest_host(hosts, "n1") == chosen
