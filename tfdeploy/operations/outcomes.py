"""Split the results of a call to many hosts, and combine the errors of hosts into one error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tfdeploy.errors import HostFailed, HostUnreachable, Refused, TfdeployError, worst_exit_code
from tfdeploy.model.answers.failures import prefix_with_host
from tfdeploy.model.inventory import Host
from tfdeploy.text.names import fold_errors, fold_names
from tfdeploy.text.nexts import merge_next_commands
from tfdeploy.transport.protocols import Errors, Fleet, Session

V = TypeVar("V")


def split_outcomes(
    results: Mapping[str, V | TfdeployError],
) -> tuple[dict[str, V], Errors]:
    """Return ({host: its value} for hosts that succeeded, {host: its error} for the others)."""
    values: dict[str, V] = {}
    errors: Errors = {}
    for host, result in results.items():
        if isinstance(result, TfdeployError):
            errors[host] = result
        else:
            values[host] = result
    return values, errors


def combine_errors(
    action: str, errors: Mapping[str, TfdeployError], host_count: int
) -> TfdeployError:
    """Combine the errors of hosts into one, with the worst exit code and the text of each error.

    `errors` must not be empty. `host_count` is the number of hosts on which the action was run.
    """
    if len(errors) == 1:
        ((host, error),) = errors.items()
        error.where = error.where or host
        return error
    code = worst_exit_code(errors.values())
    kinds: dict[int, type[TfdeployError]] = {3: Refused, 4: HostUnreachable}
    kind = kinds.get(code, HostFailed)
    lines = [f"{action} failed on {len(errors)} of {host_count} hosts:"]
    texts = {
        host: error.what + ("" if error.where in (None, host) else f" ({error.where})")
        for host, error in errors.items()
    }
    lines += [f"  {prefix_with_host(names, text)}" for names, text in fold_errors(texts).items()]
    nexts = merge_next_commands({host: error.next for host, error in errors.items()})
    return kind("\n".join(lines), where=fold_names(errors), next="\n".join(nexts) or None)


def session_of(fleet: Fleet, host: Host) -> Session:
    """Return the session of one host. Raise the host's error if it cannot be connected."""
    session = fleet.connect((host,))[host.name]
    if isinstance(session, TfdeployError):
        raise session
    return session


def values_or_error(action: str, results: Mapping[str, V | TfdeployError]) -> dict[str, V]:
    """Return all values, or raise one error for all hosts that failed."""
    values, errors = split_outcomes(results)
    if errors:
        raise combine_errors(action, errors, len(results))
    return values
