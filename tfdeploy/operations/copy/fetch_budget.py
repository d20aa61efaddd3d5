"""Limit how many bytes one host may send: by --max, and by the free space of this machine's disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import HostFailed

RESERVE_BYTES = 256 << 20  # free space that a fetch must leave on this machine's disk


@dataclass
class FetchBudget:
    """The bytes that one host may send in total. Used by one thread.

    `most` is the user's limit (None: as much as the disk of this machine takes).
    """

    host: str
    most: int | None = None
    taken: int = 0

    def announce(self, total: int, folder: Path) -> None:
        """Raise HostFailed if so many further bytes would be too many."""
        if self.most is not None and self.taken + total > self.most:
            raise HostFailed(
                f"{self.taken + total} bytes are to be fetched, more than --max {self.most} allows",
                where=self.host,
                next=f"--max {self.taken + total}B, or --keep, --files, --logs alone",
            )
        free = _free(folder)
        if total > free:
            raise HostFailed(
                f"{self.host}: {total} bytes are to be fetched, but only {free} may be written here",
                where=str(folder),
                next="--to DIR",
            )

    def left(self, folder: Path) -> int:
        """Return how many bytes may still come."""
        allowed = _free(folder)
        return max(0, allowed if self.most is None else min(allowed, self.most - self.taken))

    def spend(self, count: int) -> None:
        """Count received bytes. Raise HostFailed once they are too many."""
        self.taken += count
        if self.most is not None and self.taken > self.most:
            raise HostFailed(
                f"it sends more than --max {self.most} allows",
                where=self.host,
                next="a larger --max",
            )


def _free(folder: Path) -> int:
    about = os.statvfs(folder)
    return max(0, about.f_bavail * about.f_frsize - RESERVE_BYTES)
