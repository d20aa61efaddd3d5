"""Recognise the files that `report` and `compare` write, so that no release contains them. Pure."""

from __future__ import annotations

PAGE = "<!doctype html><!-- written by tfdeploy -->"
# The beginning of the header of a table of samples: the first names in sample_table.BEFORE. They
# are copied, because importing sample_table is slow.
TABLE = '"time","seconds","task","host","attempt",'
_BEGINNINGS = (PAGE.encode("ascii"), TABLE.encode("ascii"))


def is_written_by_tfdeploy(content: bytes) -> bool:
    """True if tfdeploy wrote the file. `content`: at least the first 64 bytes of the file."""
    return content.startswith(_BEGINNINGS)
