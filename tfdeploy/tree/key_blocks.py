"""Find private keys in a file's content: the header of a usual format, followed by base64.

A header without base64, as in this source file, is not a key. The functions are pure.
"""

from __future__ import annotations

import re

# Larger files are not searched, because neither keys nor hand-written files are so large.
SEARCHED_BYTES = 1 << 20
_MARKS = (b"PRIVATE KEY", b"PuTTY-User-Key-File-")
# These patterns are not compiled at import, because most trees have no file with one of _MARKS.
_HEADER = (
    rb"-{4,5} ?BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    rb"|PuTTY-User-Key-File-\d: [^\n]{1,80}\nEncryption: "
)
# Between the lines of a key there may be white space, quotes and other characters of a source file,
# and line ends as JSON writes them.
_BETWEEN = rb"(?:[\s\"'`+,;#>|*()]|\\[nr\\]|//){0,200}"
# Matches one header field of a key, such as Proc-Type, DEK-Info or Comment.
_FIELD = rb"[A-Za-z][A-Za-z0-9-]{0,40}: [^\r\n\\]{0,400}(?=[\r\n\\])"
_PEM_BODY = rb"(?:%s%s){0,8}%s[A-Za-z0-9+/]{40}" % (_BETWEEN, _FIELD, _BETWEEN)
_PUTTY_BODY = rb"(?:[^\n]{0,400}\n){1,60}?Private-Lines: \d{1,4}\s{1,4}[A-Za-z0-9+/]{40}"


def private_key_line(content: bytes) -> int:
    """Return the number of the line at which the first private key begins; 0 if there is no key."""
    if not any(mark in content for mark in _MARKS):
        return 0
    for header in re.finditer(_HEADER, content):
        body = _PUTTY_BODY if header[0].startswith(b"PuTTY") else _PEM_BODY
        if re.compile(body).match(content, header.end()):
            return content.count(b"\n", 0, header.start()) + 1
    return 0
