"""Find hosts of a run that do not know that the run is over while another host knows it. This
happens if the network between these hosts is cut. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.agent.wire import HostRunState


def find_uninformed_hosts(
    states: Mapping[str, HostRunState | None],
) -> tuple[str, tuple[str, ...]] | None:
    """Return (a host that knows that the run is over, the hosts that do not know this and so still
    run their tasks).

    Return None if no host knows that the run is over, or if all hosts know that it is over.
    """
    known = {host: state for host, state in sorted(states.items()) if state is not None}
    knowing = [host for host, state in known.items() if _knows_run_over(state)]
    lacking = tuple(
        h
        for h, s in known.items()
        if s.phase in ("started", "committed") and not _knows_run_over(s)
    )
    return (knowing[0], lacking) if knowing and lacking else None


def _knows_run_over(state: HostRunState) -> bool:
    stopped = state.stop_requested and state.phase in ("ending", "ended")
    return stopped or bool(state.abort_reason or state.first_death) or "decided" in state.marks
