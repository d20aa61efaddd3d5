"""Write folders of many small files, like source code, for benchmarks. Their content is always the
same."""

from __future__ import annotations

import random
from pathlib import Path

PER_FOLDER = 50


def write(root: Path, files: int) -> Path:
    """Write `files` files of 0.2 to 4 KiB in folders of 50. Return the path of the last file."""
    words = random.Random(files)
    for number in range(files):
        path = root / f"package{number // PER_FOLDER:03}" / f"module{number % PER_FOLDER:02}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(
                f"x{words.randrange(10**9)} = {words.random()}\n"
                for _ in range(words.randrange(6, 120))
            )
        )
    return path


def change(path: Path) -> None:
    """Append a line to the file, so that its size, time and content change."""
    with path.open("a") as stream:
        stream.write(f"changed = {random.random()}\n")
