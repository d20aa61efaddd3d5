"""Classify errors of `run.prepare`: a taken port (a new plan may help), a refusal or a failure."""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.errors import PortTaken, Refused, TfdeployError, has_code
from tfdeploy.operations.outcomes import combine_errors

# Error codes of the agent that mean a refusal.
REFUSED = ("live_run", "exists", "refused", "no_release", "no_program", "disk")


def combined_prepare_error(
    errors_by_host: Mapping[str, TfdeployError], host_count: int
) -> TfdeployError:
    """Return one error for the hosts that could not prepare the run.

    If all of these hosts report a taken port, the error is PortTaken: a new plan may help. If all
    these hosts report either a taken port or a refusal, the error is the first refusal. Otherwise
    the error combines the errors of these hosts. `host_count` is the number of hosts of the run.
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
            f"a port was taken since the probe: {error.what}", where=host, next=error.next
        )
    if has_code(error, *REFUSED):
        return Refused(error.what, where=error.where or host, next=error.next)
    return error
