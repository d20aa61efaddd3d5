"""Name the environment variables that tell a task which part of a data set it has. Pure."""

from __future__ import annotations

BEFORE = "TFDEPLOY_DATA_"


def part_number_variable(name: str) -> str:
    """Return TFDEPLOY_DATA_<NAME>_PART, the name of the variable that holds the number of the
    task's part, counted from 0.

    <NAME> is the data set's name in capitals. Characters that are neither letters nor digits become
    `_`.
    """
    capitals = "".join(char if char.isascii() and char.isalnum() else "_" for char in name).upper()
    return f"{BEFORE}{capitals}_PART"


def part_count_variable(name: str) -> str:
    """Return TFDEPLOY_DATA_<NAME>_PARTS, the name of the variable that holds the number of
    parts."""
    return f"{part_number_variable(name)}S"
