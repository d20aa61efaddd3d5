"""Classify errors of the verb `run.prepare` as a taken port, a refusal or a failure.

After a taken port, the launch makes a new plan and tries again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.errors import PortTaken, Refused, TfdeployError, has_code
from tfdeploy.operations.outcomes import combine_errors

# Error codes by which the agent says that the host refuses the run.
REFUSED = ("live_run", "exists", "refused", "no_release", "no_program", "disk")


def combined_prepare_error(
    errors_by_host: Mapping[str, TfdeployError], host_count: int
) -> TfdeployError:
    """Return one error for the hosts that could not prepare the run.

    - Only taken ports: the result is PortTaken, after which the launch tries again.
    - Only taken ports and refusals: the result is the first refusal.
    - Anything else: the result combines the errors of all these hosts.

    `host_count` is the number of hosts of the run.
    """
    errors = {host: _classify_error(host, error) for host, error in errors_by_host.items()}
    failures = [error for error in errors.values() if not isinstance(error, PortTaken)]
    if all(isinstance(error, Refused) for error in failures):
        return next(iter(failures or errors.values()))
    return combine_errors("prepare", errors, host_count)


def _classify_error(host: str, error: TfdeployError) -> TfdeployError:
    """Return PortTaken or Refused if the agent's error code says so, else the error itself."""
    if has_code(error, "port_taken"):
        return PortTaken(
            f"a port was taken since the probe: {error.what}",
            where=host,
            next=error.next or "type the same command again",
        )
    if has_code(error, *REFUSED):
        return Refused(error.what, where=error.where or host, next=error.next)
    return error
