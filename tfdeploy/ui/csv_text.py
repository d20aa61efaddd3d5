"""Write a table as CSV (RFC 4180) for spreadsheets. Pure.

Spreadsheets evaluate a cell that begins with one of `=+-@`, and texts come from programs and hosts.
So a `'` is inserted before such a text. It is also inserted after a semicolon, because spreadsheets
in countries with a decimal comma split cells there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tfdeploy.ui.sanitise import clean

# The start of a formula: one of `=+-@`, or its full-width form.
_FORMULA = re.compile('(^|;)(?=[\\s"]*[-=+@\uff1d\uff0b\uff0d\uff20])')


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Return the table, ending in a line break. None becomes an empty cell. Numbers are written as
    in Python, whole numbers without a point."""
    return "".join(",".join(map(_cell, row)) + "\r\n" for row in (headers, *rows))


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + _FORMULA.sub(r"\1'", clean(value)).replace('"', '""') + '"'
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
