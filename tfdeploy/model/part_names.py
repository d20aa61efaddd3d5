"""The variables that tell a task which part of a data set it has. Pure."""

from __future__ import annotations

BEFORE = "TFDEPLOY_DATA_"


def part_variable(name: str) -> str:
    """TFDEPLOY_DATA_<NAME>_PART, the part's number from 0: NAME in capitals, `_` for what is no
    letter or digit."""
    return f"{BEFORE}{_capitals(name)}_PART"


def parts_variable(name: str) -> str:
    """TFDEPLOY_DATA_<NAME>_PARTS, how many parts there are."""
    return f"{BEFORE}{_capitals(name)}_PARTS"


def _capitals(name: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in name).upper()
