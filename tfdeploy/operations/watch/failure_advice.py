"""Say what to change after the failure of a task, if the error text shows the cause."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace

from tfdeploy.model.plan import Plan
from tfdeploy.text.allowed import is_host_path

_MISSING = re.compile(r"No such file or directory: '(/[^']+)'")
_INCOMPLETE = re.compile(r"(?:module|name '\w+' from) '(\w+)'")
# Finds a note of the plan that names a line of the program and says what to write. Notes about
# `keep` are left out, because a missing `keep` is no reason for a failure.
_REMEDY = re.compile(r"\.\w+:\d+\b(?!.*\bkeep\b).*\bwrite\b")
# Finds what TensorFlow, Keras, NumPy and PyTorch print if a checkpoint does not fit the program's
# model.
_UNFIT = re.compile(r"(?i)\bshapes?\b|size mismatch|not found in checkpoint|loading state_dict")


def failure_advice(plan: Plan, task: str | None, cause: str) -> str:
    """Return advice on what to change, as a text that begins with "; ".

    If the cause does not show what to change, the text is the first note of the plan that says what
    to write. If there is no such note, the text is "". `task`: the task that died first. `cause`:
    how the task died, in words of the program and its host.
    """
    if not plan.command:
        # The plan comes from a host (see read_untrusted_plan), whose words are no advice.
        plan = replace(plan, notes=(), resume=None)
    hosts = {each.task: each.host for each in plan.tasks}
    sharing = [each for each in hosts if each != task and hosts[each] == hosts.get(task or "")]
    match = _MISSING.search(cause)
    path = match[1] if match and is_host_path(match[1]) else ""
    give = "and give the program {data.NAME}"
    if os.path.exists(path):
        return (
            f"; {path} is on this machine, but only the code and the sources in `data:` are sent: "
            f"write `data: {{NAME: {path}}}`, {give}"
        )
    if path and plan.hosts[1:]:
        return (
            f"; `tfdeploy exec -- ls -d {shlex.quote(path)}` shows which hosts have this path. If "
            f"one does, write `data: {{NAME: {{from: HOST:{path}}}}}`, {give}"
        )
    if "ddress already in use" in cause and sharing:
        return (
            f"; {', '.join(sharing)} on the same host may use the same port: give each task its "
            f"own, by "
            "{local_rank} (mode plain) or {task_index} in the command, such as "
            "--port=600{local_rank}"
        )
    if plan.resume and _UNFIT.search(cause):
        return (
            f"; the run continued from {plan.resume}; if these checkpoints are of another model, "
            "`tfdeploy launch --fresh` starts from zero"
        )
    if "stalled: " in cause:
        return (
            f"; a task that showed no activity for {plan.stall_after_s:g} s was ended. If it "
            f"only "
            "worked silently, raise `stall.after` in the job file"
        )
    module = _INCOMPLETE.search(cause)
    if module and module[1] in sys.stdlib_module_names:
        return f"; if the code has a file {module[1]}.py, rename it: it hides Python's own module"
    noted = next(filter(_REMEDY.search, plan.notes), None)
    return f"; before the start, the plan noted: {noted}" if noted else ""
