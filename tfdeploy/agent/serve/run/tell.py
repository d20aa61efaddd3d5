"""Answers run.known and run.tell. With these verbs, the control machine learns from one host why a
run is over, and tells another host that does not know the reason.

On the other host, the run's minder reads the reason: see mesh/forwarded_end.py.
"""

from __future__ import annotations

from tfdeploy.agent import json_text, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.mesh import bounded_json, forwarded_end, shared_state
from tfdeploy.agent.serve.call import Call, Verb
from tfdeploy.agent.serve.run.status import named_run_paths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def report_known_end(call: Call) -> Answer:
    """Report why the run is over, as far as this host knows.

    Args: run, job.

    Raises VerbError unknown_run.
    """
    paths = named_run_paths(call)
    part = paths.part()
    knowledge = shared_state.from_json(paths.stored_shared_state() or {}, part)
    if not knowledge.is_over:
        return {"known": None}
    end = shared_state.keep_only_run_end_fields(part.peers, knowledge)
    return {"known": json_text.encode(end.as_json()).decode()}


def store_forwarded_end(call: Call) -> Answer:
    """Store why the run is over, as another host answered to run.known. The control machine passes
    this answer on to hosts that cannot reach that host. The answer is checked like a message
    between minders. The run's minder reads the answer at once, or when the minder is next started.

    Args: run, job, known.

    Raises VerbError unknown_run, bad_argument.
    """
    paths, text = named_run_paths(call), call.args.get("known")
    if not isinstance(text, str) or len(text) > wire.MAX_KNOWN_BYTES:
        raise VerbError("bad_argument", "`known` must describe how a run ended")
    try:
        end = shared_state.from_json(bounded_json.parse(text.encode("ascii")), paths.part())
    except ValueError as error:
        raise VerbError(
            "bad_argument", "`known` must describe how a run ended: %s" % error
        ) from error
    if paths.state().phase != "ended":
        forwarded_end.write_forwarded_run_end(paths, end)
    return {}


VERBS: Dict[str, Verb] = {"run.known": report_known_end, "run.tell": store_forwarded_end}
