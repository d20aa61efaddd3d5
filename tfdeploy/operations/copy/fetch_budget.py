"""Limit how many bytes one host may send.

The limits are --max and the free space on this machine's disk.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import HostFailed

RESERVE_BYTES = 256 << 20  # free space that a fetch must leave on this machine's disk


@dataclass
class FetchBudget:
    """The bytes that one host may send in total. Not thread-safe.

    `max_bytes` is the user's limit (None: only the free space limits).
    """

    host: str
    max_bytes: int | None = None
    received_bytes: int = 0

    def check_fits(self, total_bytes: int, folder: Path) -> None:
        """Raise HostFailed if a transfer of `total_bytes` exceeds --max or the folder's free space."""
        sum_bytes = self.received_bytes + total_bytes
        if self.max_bytes is not None and sum_bytes > self.max_bytes:
            raise HostFailed(
                f"{sum_bytes} bytes are to be fetched, more than --max {self.max_bytes} allows",
                where=self.host,
                next=f"add --max {sum_bytes}B, or fetch less: add only --keep, only --files or "
                "only --logs",
            )
        free = _free_bytes(folder)
        if total_bytes > free:
            raise HostFailed(
                f"{self.host}: {total_bytes} bytes are to be fetched, but only {free} bytes may be "
                "written to this disk",
                where=str(folder),
                next="name another folder with --to DIR",
            )

    def remaining_bytes(self, folder: Path) -> int:
        """Return how many bytes the host may still send to `folder`."""
        allowed = _free_bytes(folder)
        if self.max_bytes is not None:
            allowed = min(allowed, self.max_bytes - self.received_bytes)
        return max(0, allowed)

    def count_received(self, byte_count: int) -> None:
        """Count received bytes. Raise HostFailed once they are more than --max."""
        self.received_bytes += byte_count
        if self.max_bytes is not None and self.received_bytes > self.max_bytes:
            raise HostFailed(
                f"it sends more than --max {self.max_bytes} allows",
                where=self.host,
                next="add a larger --max",
            )


def _free_bytes(folder: Path) -> int:
    """Return the free bytes of the folder's disk, less the reserve."""
    disk = os.statvfs(folder)
    return max(0, disk.f_bavail * disk.f_frsize - RESERVE_BYTES)
