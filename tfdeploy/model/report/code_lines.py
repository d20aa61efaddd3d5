"""Find which lines differ between two versions of a file of code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from itertools import islice
from typing import TypedDict

from tfdeploy.model.manifest import CodeFile

MOST_FILES = 50  # the most files that are compared for a pair of runs
MOST_BYTES = 256 << 10  # a larger file is not compared
MOST_LINES = 2000  # the most lines of the diff of one file
CONTEXT = 3  # unchanged lines that a diff shows around a difference

CodeFiles = Mapping[str, CodeFile]
Contents = Mapping[str, bytes]


class LinesOfFile(TypedDict):
    """The lines of one file that differ. `runs`: the first of all compared runs, and the run whose
    file differs from the first run's. `diff`: the output of `diff -u` without its head."""

    path: str
    runs: tuple[str, str]
    diff: list[str] | None  # None if there is no diff, for the reason in `why`
    why: str | None


def changed_files(one: CodeFiles, other: CodeFiles) -> list[str]:
    """Return at most MOST_FILES files whose content differs or that one of the two runs lacks.
    Links are left out."""
    versions = {path: (one.get(path), other.get(path)) for path in sorted({*one, *other})}
    changed = [
        path
        for path, files in versions.items()
        if files[0] != files[1] and all(file is None or file.kind != "link" for file in files)
    ]
    return changed[:MOST_FILES]


def select_comparable(files: CodeFiles, paths: Iterable[str]) -> dict[str, CodeFile]:
    """Return those of `paths` that exist and are small enough to compare."""
    return {path: files[path] for path in paths if path in files and files[path].size <= MOST_BYTES}


def lines_of_files(
    runs: tuple[str, str],
    files: tuple[CodeFiles, CodeFiles],
    contents: tuple[Contents | None, Contents | None],
) -> Iterator[LinesOfFile]:
    """Yield the differing lines of each changed file. `contents`: one entry for each run: the
    contents of the files that `select_comparable` returned. The entry is None if no host has the
    run's code any more."""
    for path in changed_files(*files):
        texts, why = [], None
        for run, known, content in zip(runs, files, contents, strict=True):
            if path not in known:
                texts.append("")
            elif known[path].size > MOST_BYTES:
                why = f"it is larger than {MOST_BYTES >> 10} KiB"
            elif content is None or path not in content:
                why = f"no host has the release of {run} any more"
            elif (text := _decode_text(content[path])) is None:
                why = "it is no text"
            else:
                texts.append(text)
        diff: list[str] = []
        if not why:
            before, after = map(str.splitlines, texts)
            lines = unified_diff(before, after, n=CONTEXT, lineterm="")
            # The first two lines are the head of the diff.
            diff = list(islice(lines, 2, MOST_LINES))
            why = None if diff else "only its mode or its line ends differ"
        yield {"path": path, "runs": runs, "diff": diff or None, "why": why}


def _decode_text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
