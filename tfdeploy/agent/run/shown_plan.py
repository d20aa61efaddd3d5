"""Store the plan of a run on a host, as plan.json. run.prepare writes the file, and the host later
sends it back unchanged.

The control machine reads all fields of the plan (tfdeploy/model/plan_files.py). The host reads only
a few fields, to show them to people. These fields may be missing.
"""

from __future__ import annotations

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.host.atomic import read_json, write_json

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import ShownPlan, Unchecked


def write_plan(workdir: str, job: str, run: str, plan: Unchecked) -> None:
    """Write the plan of a run to plan.json. Raises OSError."""
    write_json(layout.plan_file(workdir, job, run), plan, durable=True)


def read_plan_bytes(workdir: str, job: str, run: str) -> bytes:
    """Return the content of plan.json, unchanged. Raises OSError."""
    with open(layout.plan_file(workdir, job, run), "rb") as file:
        return file.read()


def read_plan(workdir: str, job: str, run: str) -> ShownPlan:
    """Return the fields of the plan that are shown to people. A field that is missing or damaged
    gets its default. Raises OSError."""
    plan = read_json(layout.plan_file(workdir, job, run)) or {}
    names = plan.get("data")
    return {
        "operator": str(plan.get("operator") or "unknown"),
        "created": plan.get("created"),
        "data": [str(name) for name in names] if isinstance(names, dict) else None,
    }


def planned_python(workdir: str, job: str, run: str, host: str) -> Optional[str]:
    """Return the interpreter that the plan names for the host, or None if it names none. Raises
    OSError."""
    listed = (read_json(layout.plan_file(workdir, job, run)) or {}).get("hosts")
    hosts = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return next(
        (str(each["python"]) for each in hosts if each.get("host") == host and "python" in each),
        None,
    )
