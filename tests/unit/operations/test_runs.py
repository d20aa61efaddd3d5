"""The order of `tfdeploy runs`."""

from __future__ import annotations

from tfdeploy.operations.runs import newest_first


def test_newest_first_and_what_is_not_known_last() -> None:
    times = ["2026-11-21T10:15:00Z", None, "2026-11-21T10:15:00.250Z", "2025-01-01T00:00:00Z", "2026-11-21T10:15:01Z"]
    told = [row["started"] for row in newest_first([{"started": time} for time in times])]
    assert told == ["2026-11-21T10:15:01Z", "2026-11-21T10:15:00.250Z", "2026-11-21T10:15:00Z", "2025-01-01T00:00:00Z", None]
