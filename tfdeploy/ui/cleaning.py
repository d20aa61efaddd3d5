"""Show the result of `tfdeploy clean`: a row for each removed item, with the size of the item and
the hosts that have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfdeploy.model.answers.clean import CleanItem
from tfdeploy.text.names import fold_names, group_by_key
from tfdeploy.ui.amounts import format_bytes, format_count, list_first
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import show_rows
from tfdeploy.ui.terminal import Terminal

# A line names at most this many runs; further runs are only counted.
MOST_NAMES = 10


def show_removed_items(
    terminal: Terminal,
    items_by_host: Mapping[str, Iterable[CleanItem]],
    record_bytes_by_run: Mapping[str, int],
) -> None:
    """Write a table of the items that are removed. `items_by_host`: {host: items}.
    `record_bytes_by_run`: {run: bytes of the run's record on this machine}."""
    sizes = group_by_key(
        ((item.kind, item.job, item.name), (clean(host), item.bytes))
        for host, items in items_by_host.items()
        for item in items
    )
    rows: list[tuple[str, ...]] = [
        (*item, format_bytes(sum(size for _, size in hosts)), fold_names(host for host, _ in hosts))
        for item, hosts in sizes.items()
    ]
    if record_bytes_by_run:
        rows.append(
            (
                "record",
                "",
                format_count(len(record_bytes_by_run), "run"),
                format_bytes(sum(record_bytes_by_run.values())),
                "this machine",
            )
        )
    show_rows(terminal, ("what", "job", "name", "size", "hosts"), rows)


def explain_kept_items(items_by_host: Mapping[str, Iterable[CleanItem]]) -> list[str]:
    """Return a line for each item that is not removed, with the reason. `items_by_host`: {host: its
    items that are not removed}."""
    hosts_by_item = group_by_key(
        ((item.kind, item.name, item.stays), host)
        for host, items in items_by_host.items()
        for item in items
    )
    return [
        f"[{fold_names(hosts)}] {kind} {clean(name)} stays: {clean(why)}"
        for (kind, name, why), hosts in hosts_by_item.items()
    ]


def explain_kept_records(unended: Sequence[str], elsewhere: Sequence[str], store: str) -> list[str]:
    """Return lines that say which run records of this machine are not removed, and why.

    `unended`: runs that no host knows any more, and whose end this machine has not recorded.
    `elsewhere`: runs with at least one host that did not answer or was not asked. `store`: the
    folder of the records."""
    lines = []
    if unended:
        names = list_first([*map(clean, unended)], MOST_NAMES)
        lines.append(
            f"{_count_records(unended)} ({names}): no host has the run, and its end is not "
            f"recorded. "
            f"This command removes the record of a run: rm -r {store}/RUN"
        )
    if elsewhere:
        lines.append(
            f"{_count_records(elsewhere)}: a host of the run was not asked or did not answer"
        )
    return lines


def _count_records(runs: Sequence[str]) -> str:
    return "1 record stays" if len(runs) == 1 else f"{len(runs)} records stay"
