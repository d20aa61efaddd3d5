"""Print messages about hosts on stderr. Several verbs use them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tfdeploy.cli.output import print_message
from tfdeploy.cli.project import adapt_advice
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.text.names import fold_errors, fold_names
from tfdeploy.text.nexts import merge_next_commands
from tfdeploy.ui.sanitise import clean

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.plan import Plan


def show_errors(flags: CommonFlags, errors: Mapping[str, TfdeployError], prefix: str = "") -> None:
    """Print `prefix` and the error of each host, then the commands to type next."""
    for names, what in fold_errors({host: error.what for host, error in errors.items()}).items():
        print_message(f"[{names}] {prefix}{clean(what)}")
    print_next_commands(flags, errors)


def print_next_commands(flags: CommonFlags, results: Mapping[str, object]) -> None:
    """Print the commands to type next, which the errors in `results` suggest."""
    errors = split_outcomes(results)[1]
    for text in merge_next_commands({host: error.next for host, error in errors.items()}):
        for line in adapt_advice(flags, text).splitlines():
            print_message(f"  next: {clean(line)}")


def unselected_host_names(plan: Plan, only_hosts: Collection[str] | None) -> list[str]:
    """Return the names of the run's hosts that are not in `only_hosts`.

    The result is empty if `only_hosts` is None, because the verb then asks all hosts.
    """
    return [] if only_hosts is None else [n for n in plan.host_names if n not in only_hosts]


def print_unselected_hosts(flags: CommonFlags, hosts: Iterable[str], purpose: str = "") -> None:
    """Print that the verb did not ask `hosts`, because --limit and --exclude left them out.

    `purpose`: what the verb asks hosts for, such as " for newer checkpoints".
    """
    names = tuple(hosts)
    if names and not flags.quiet:
        print_message(
            f"{fold_names(names)} {'was' if len(names) == 1 else 'were'} not asked{purpose} "
            "(--limit/--exclude)"
        )
