"""What TensorFlow's C++ code writes among a program's lines, told apart from them by its prefix. Pure.

Its numbers are no measures: "Step 65783289095256262 cancelled" names a random id. Python's own logging (absl writes the same
prefix, with a .py file in it) is the program's.
"""

from __future__ import annotations

import re

_PREFIX = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ [^\s:\]]+\.(?:cc|cpp|c|cu|h|hpp|inc):\d+\] "  # absl, glog: I0000 00:00:1795343518.7
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] (?!\S+\.py:)[^\s:\]]+:\d+\] "  # TensorFlow up to 2.17
    r"|^[IWEF] (?:tensorflow|external)/[^\s:\]]+:\d+\] "  # before 1.0
)


def program_text(line: str) -> str:
    """The line up to where TensorFlow's C++ log begins in it."""
    if "] " not in line:
        return line
    found = _PREFIX.search(line)
    return line if found is None else line[: found.start()]
