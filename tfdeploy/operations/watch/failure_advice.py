"""Say what to change after a failure of a task whose reason shows the cause."""

from __future__ import annotations

import os
import re
import shlex
import sys

from tfdeploy.model.plan import Plan

_MISSING = re.compile(r"No such file or directory: '(/[^']+)'")
_INCOMPLETE = re.compile(r"(?:module|name '\w+' from) '(\w+)'")
# A note of the plan that names a line of the program and what to write there or in the job file. A
# missing `keep` is no reason for a failure.
_REMEDY = re.compile(r"\.\w+:\d+\b(?!.*\bkeep\b).*\bwrite\b")
# What TensorFlow, Keras, NumPy and PyTorch say if a checkpoint does not fit the program's model.
_UNFIT = re.compile(r"(?i)\bshapes?\b|size mismatch|not found in checkpoint|loading state_dict")


def failure_advice(plan: Plan, task: str | None, cause: str) -> str:
    """Return what to change, after "; ". If the cause does not show it, return the first note of the
    plan that says what to write, or "".

    `task`: the task that died first. `cause`: how it died.
    """
    hosts = {each.task: each.host for each in plan.tasks}
    sharing = [each for each in hosts if each != task and hosts[each] == hosts.get(task or "")]
    match = _MISSING.search(cause)
    path = match[1] if match else ""
    give = "and give the program {data.NAME}"
    if os.path.exists(path):
        return (
            f"; {path} is on this machine, and only the code and what `data:` names is sent: write "
            f"`data: {{NAME: {path}}}`, {give}"
        )
    if path and plan.hosts[1:]:
        return (
            f"; `tfdeploy exec -- ls -d {shlex.quote(path)}` shows which hosts have it. If one does: "
            f"`data: {{NAME: {{from: HOST:{path}}}}}`, {give}"
        )
    if "ddress already in use" in cause and sharing:
        return (
            f"; {', '.join(sharing)} on the same host may use the same port: give each task its own, by "
            "{local_rank} (mode plain) or {task_index} in the command, such as --port=600{local_rank}"
        )
    if plan.resume and _UNFIT.search(cause):
        return (
            f"; the run continued from {plan.resume}; if these are of another model, "
            "`tfdeploy launch --fresh` starts from zero"
        )
    if "stalled: " in cause:
        return (
            f"; a task without a sign of life for {plan.stall_after_s:g} s was restarted: if it only "
            "worked silently, raise `stall.after` in the job file"
        )
    module = _INCOMPLETE.search(cause)
    if module and module[1] in sys.stdlib_module_names:
        return f"; if the code has a file {module[1]}.py, rename it: it hides Python's own module"
    noted = next(filter(_REMEDY.search, plan.notes), None)
    return f"; before the start, the plan noted: {noted}" if noted else ""
