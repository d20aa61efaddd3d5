"""How the files begin that `report` and `compare` write, so that they are known again: no release takes them. Pure."""

from __future__ import annotations

PAGE = "<!doctype html><!-- written by tfdeploy -->"
TABLE = '"time","seconds","task","host","attempt",'  # sample_table.BEFORE, which is slow to import
_BEGINNINGS = (PAGE.encode("ascii"), TABLE.encode("ascii"))


def is_own(content: bytes) -> bool:
    """`content`: of a file, at least its first 64 bytes."""
    return content.startswith(_BEGINNINGS)
