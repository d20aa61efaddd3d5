"""Ask the operator before a sync deletes most files of a data set on a host.

The operator is asked, because the source of the data set may be the wrong folder or incomplete.
"""

from __future__ import annotations

from collections.abc import Callable

from tfdeploy.errors import Refused
from tfdeploy.text.names import fold_names, group_equal

A_FEW = 5  # up to this many files may be deleted without a question
# Limit, in bytes, for the hashes of the file names in a data set (8 bytes for each name). If there
# are more, the names are not compared with the files on a host, and the data set is sent without a
# question.
MOST_NAMES_BYTES = 32 << 20

Confirm = Callable[[str], bool]  # asks the operator a question, and returns True if he answers yes
# {data set: {host: (number of files that would be deleted, number of files on the host)}}
Deletions = dict[str, dict[str, tuple[int, int]]]


def never_confirm(question: str) -> bool:
    """Answer no to every question."""
    return False


def needs_confirmation(deleted_count: int, host_file_count: int) -> bool:
    """Return whether the operator must confirm that a host deletes `deleted_count` files.

    He must do so if these are more than A_FEW files and more than half of the files on the host.
    `host_file_count` is the number of files that the host has now.
    """
    return deleted_count > A_FEW and 2 * deleted_count > host_file_count


def refuse_unconfirmed_deletions(deletions: Deletions, confirm: Confirm) -> None:
    """Raise Refused if most of a data set would be deleted and the operator does not confirm it."""
    for name, hosts in deletions.items():
        most = {host: loss for host, loss in hosts.items() if needs_confirmation(*loss)}
        if not most:
            continue
        lost, total = max(most.values())
        lacks, host_names = f"lacks {lost:,} of the {total:,} files", fold_names(sorted(most))
        lacks += f" that are on {host_names}"
        if not confirm(f"data {name}: the source {lacks}. Delete the {lost:,} files on the hosts?"):
            raise Refused(
                f"the source of data {name} {lacks}: these files would be deleted on the hosts",
                where=f"data: {name}",
                next="correct `data:` in the job file, or add -y to delete these files",
            )


def deletion_notes(deletions: Deletions) -> list[str]:
    """Return the notes about files that hosts will delete.

    For each data set, hosts that lose the same number of files share one line.
    """
    lines = []
    for name, hosts in deletions.items():
        for same_hosts, (lost, total) in group_equal(hosts):
            files = f"{lost:,} of the {total:,} files"
            lines.append(
                f"data {name}: the source lacks {files} that are on "
                f"{fold_names(sorted(same_hosts))}: the hosts delete these files as soon as no "
                "run reads them"
            )
    return lines
