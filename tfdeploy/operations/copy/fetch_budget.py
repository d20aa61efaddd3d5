"""How many bytes one host may still send: what the user allows, and what this machine's disk has
free less a reserve."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import HostFailed

RESERVE_BYTES = 256 << 20  # stays free on the disk here


@dataclass
class FetchBudget:
    """`most`: bytes that this host may send in all; None: as many as the disk here takes. One
    thread."""

    host: str
    most: int | None = None
    taken: int = 0

    def announce(self, total: int, folder: Path) -> None:
        """Raises HostFailed where so many further bytes would be too many."""
        if self.most is not None and self.taken + total > self.most:
            raise HostFailed(
                f"{self.taken + total} bytes are to be fetched, more than --max {self.most} allows",
                where=self.host,
                next=f"--max {self.taken + total}B, or --keep, --files, --logs alone",
            )
        free = _free(folder)
        if total > free:
            raise HostFailed(
                f"{self.host}: {total} bytes are to be fetched, and {free} may be written here",
                where=str(folder),
                next="--to DIR",
            )

    def left(self, folder: Path) -> int:
        """How many bytes may still come."""
        allowed = _free(folder)
        return max(0, allowed if self.most is None else min(allowed, self.most - self.taken))

    def spend(self, count: int) -> None:
        """Counts bytes that came. Raises HostFailed once they are too many."""
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
