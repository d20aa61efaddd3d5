"""Before a sync deletes most of a data set on a host the operator is asked: the source may be the wrong folder, or half gone."""

from __future__ import annotations

from collections.abc import Callable

from tfdeploy.errors import Refused
from tfdeploy.model.folding import fold_names

A_FEW = 5  # files: so many may go without a question
MOST_NAMES_BYTES = 32 << 20  # of names that are compared; a data set of more files is sent unasked

Agree = Callable[[str], bool]  # given what would happen
Losses = dict[str, dict[str, tuple[int, int]]]  # data set -> host -> (files that would be deleted, files there)


def never(what: str) -> bool:
    return False


def most(losing: int, files: int) -> bool:
    return losing > A_FEW and 2 * losing > files


def refuse_losses(losing: Losses, agree: Agree) -> None:
    """Raises Refused for what is not agreed to."""
    for name, hosts in losing.items():
        lost, there = max(hosts.values())
        places = fold_names(sorted(hosts))
        what = (
            f"the source of data {name} lacks {lost:,} of the {there:,} files that lie on {places}: they would be deleted there"
        )
        if not agree(what):
            raise Refused(what, where=f"data: {name}", next="correct `data:` in the job file, or -y to delete them")
