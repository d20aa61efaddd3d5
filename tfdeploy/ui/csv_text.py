"""Write a table as CSV (RFC 4180) for spreadsheets. Pure.

Texts come from programs and hosts, and spreadsheets compute a cell that begins with one of `=+-@`,
so such a text gets a `'` in front. So does what follows a semicolon, at which many spreadsheets
split lines where numbers have a decimal comma.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tfdeploy.ui.sanitise import clean

# and their full-width forms
_FORMULA = re.compile('(^|;)(?=[\\s"]*[-=+@\uff1d\uff0b\uff0d\uff20])')


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Return the table, ending in a line break. None: an empty cell. Numbers are written as Python
    does, whole ones without a point."""
    return "".join(",".join(map(_cell, row)) + "\r\n" for row in (headers, *rows))


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + _FORMULA.sub(r"\1'", clean(value)).replace('"', '""') + '"'
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
