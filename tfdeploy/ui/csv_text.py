"""Write a table as CSV (RFC 4180) for spreadsheets. The functions are pure.

Spreadsheets evaluate a cell that begins with one of `=+-@`, and the text of a cell may come from a
program or a host. So a `'` is inserted before such a text. A `'` is also inserted after a
semicolon, because spreadsheets in countries with a decimal comma split cells at semicolons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tfdeploy.ui.sanitise import clean

# A formula can begin at the start of the text or after a semicolon. It begins with one of `=+-@` or
# a full-width form of these characters.
_FORMULA = re.compile('(^|;)(?=[\\s"]*[-=+@\uff1d\uff0b\uff0d\uff20])')


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Return the table as text that ends with a line break. None becomes an empty cell. Whole
    numbers have no decimal point; other numbers are written as Python writes them."""
    return "".join(",".join(map(_csv_cell, row)) + "\r\n" for row in (headers, *rows))


def _csv_cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + _FORMULA.sub(r"\1'", clean(value)).replace('"', '""') + '"'
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
