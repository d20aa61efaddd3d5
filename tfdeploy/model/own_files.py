"""Recognises the files that `report` and `compare` write, so that no release contains them.
Pure."""

from __future__ import annotations

PAGE = "<!doctype html><!-- written by tfdeploy -->"
# The same as sample_table.BEFORE, which is slow to import.
TABLE = '"time","seconds","task","host","attempt",'
_BEGINNINGS = (PAGE.encode("ascii"), TABLE.encode("ascii"))


def is_own(content: bytes) -> bool:
    """Return True for a file that tfdeploy wrote. `content`: at least its first 64 bytes."""
    return content.startswith(_BEGINNINGS)
