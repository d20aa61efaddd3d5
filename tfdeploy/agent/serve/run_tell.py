"""run.known, run.tell: why the run is over, carried by the control machine from a host that knows it to one that does not.

The minder of that host takes it in: see mesh/told_end.py.
"""

from __future__ import annotations

import json

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.mesh import bounded_json, shared_state, told_end
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call, Verb

if TYPE_CHECKING:
    from tfdeploy.agent.answers import KnownEnd, Nothing


def known(call: Call) -> KnownEnd:
    """{"known": JSON of what makes the run over, as text; null where it goes on as far as is known here}."""
    paths = _paths(call)
    part = paths.part()
    found = told_end.checked(paths.known() or {}, part)
    if not found.is_over:
        return {"known": None}
    return {"known": json.dumps(shared_state.end_of(part.peers, found).as_json(), separators=(",", ":"))}


def tell(call: Call) -> Nothing:
    """{}: its minder looks at it at once; where there is none, the next one does. Raises VerbError bad_argument."""
    paths, text = _paths(call), call.args.get("known")
    if not isinstance(text, str) or len(text) > wire.MAX_KNOWN_BYTES:
        raise VerbError("bad_argument", "no word of the run's end")
    try:
        said = told_end.checked(bounded_json.parse(text.encode("ascii")), paths.part())
    except ValueError as error:
        raise VerbError("bad_argument", "no word of the run's end: %s" % error) from error
    if paths.state().phase != "ended":
        told_end.tell(paths, said)
    return {}


def _paths(call: Call) -> RunPaths:
    from tfdeploy.agent.serve.run_status import paths_of

    return paths_of(call)


VERBS: Dict[str, Verb] = {"run.known": known, "run.tell": tell}
