"""Find the names that match patterns: `worker`, `worker:[0-2,5]`, `n*`, `gpu[03-10]`, separated by
commas. Pure.

--task, --host, --limit and --exclude all use this syntax. Brackets are always ranges of numbers,
never sets of characters.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from tfdeploy.errors import UsageError
from tfdeploy.model.text.folding import fold_names
from tfdeploy.model.text.ranges import expand_ranges, split_list

EXAMPLES = {"host": "n1,gpu[03-10],worker,n*", "task": "worker,ps:0,worker:[0-2,5],w*"}


def match_names(
    patterns: str,
    names: Sequence[str],
    groups: Mapping[str, Collection[str]],
    *,
    flag: str,
    kind: str,
    of: str = "",
) -> set[str]:
    """Return the `names` that the patterns match. `groups`: name of a group -> its members. If a
    group and a name are equal, the name takes precedence.

    `flag`, `kind` ("host", "task") and `of` (" of RUN") are for error messages. Raises UsageError
    if a pattern is malformed or matches nothing.
    """
    parts = split_list(patterns)
    if not parts:
        raise UsageError(
            "an empty pattern", where=f"{flag} {patterns!r}", next=f"{flag} {EXAMPLES[kind]}"
        )
    matching: set[str] = set()
    for part in parts:
        try:
            fitting = _match_pattern(part, names, groups)
        except UsageError as error:  # The pattern is malformed.
            raise UsageError(error.what, where=f"{flag} {patterns}", next=error.next) from None
        if not fitting:
            raise UsageError(
                f"{part!r} matches no {kind}{of}",
                where=f"{flag} {patterns}",
                next=_hint(part, names, groups, kind),
            )
        matching |= fitting
    return matching


def _match_pattern(
    pattern: str, names: Sequence[str], groups: Mapping[str, Collection[str]]
) -> set[str]:
    if pattern in names:
        return {pattern}
    if pattern in groups:
        return set(groups[pattern])
    wanted = set(expand_ranges(pattern))
    globs = [text for text in wanted if "*" in text or "?" in text]
    return {
        name for name in names if name in wanted or any(fnmatchcase(name, text) for text in globs)
    }


def _hint(
    pattern: str, names: Sequence[str], groups: Mapping[str, Collection[str]], kind: str
) -> str:
    near = difflib.get_close_matches(pattern, [*names, *groups], n=1)
    known = f"the {kind}s are {fold_names(names)}"
    return f"did you mean {near[0]}? {known}" if near else known
