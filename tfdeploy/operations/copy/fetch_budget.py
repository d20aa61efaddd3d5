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
        """Raise HostFailed if --max or the disk of `folder` does not admit `total_bytes` more.

        The message says "at least", because other parts of the fetch may follow.
        """
        sum_bytes = self.received_bytes + total_bytes
        if self.max_bytes is not None and sum_bytes > self.max_bytes:
            raise HostFailed(
                f"at least {sum_bytes} bytes are to be fetched, more than --max {self.max_bytes} "
                "allows",
                where=self.host,
                next=f"add a larger --max (at least {sum_bytes}B), or fetch less: add only --keep, "
                "only --files or only --logs",
            )
        free = _free_bytes(folder)
        if total_bytes > free:
            raise HostFailed(
                f"{self.host}: {total_bytes} bytes are to be fetched, but this disk has room for "
                f"only {free}",
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
        """Count received bytes. Raise HostFailed if there are now more than --max allows."""
        self.received_bytes += byte_count
        if self.max_bytes is not None and self.received_bytes > self.max_bytes:
            raise HostFailed(
                f"the host sends more than --max {self.max_bytes} allows",
                where=self.host,
                next="add a larger --max",
            )


def _free_bytes(folder: Path) -> int:
    """Return how many bytes may be written to the folder's disk: all but the reserve."""
    disk = os.statvfs(folder)
    return max(0, disk.f_bavail * disk.f_frsize - RESERVE_BYTES)
