"""state.json and knowledge.json of a run on one host: with them another minder goes on where this one was."""

from __future__ import annotations

from tfdeploy.agent import knowledge, wire
from tfdeploy.agent.atomic import write_json
from tfdeploy.agent.paths import RunPaths


def save(paths: RunPaths, part: wire.HostPart, state: wire.HostRunState, known: knowledge.Knowledge) -> None:
    """How the run ends is a pure function of what is known, so that all hosts end up saying the same. Raises OSError."""
    abort, death = known.abort, knowledge.first_death(part.peers, known)
    state.first_death, state.ended_tasks, state.round = death, known.ended, known.round
    if abort is not None:
        state.stop_requested = state.stop_requested or abort["kind"] == "stop"
        if abort["kind"] == "failed":
            state.abort_reason = knowledge.in_words(death) if death is not None else None
        elif abort["kind"] == "abort":
            state.abort_reason = str(abort["reason"])
    write_json(paths.file("knowledge.json"), known.as_json())
    write_json(paths.file("state.json"), wire.to_wire(state))
