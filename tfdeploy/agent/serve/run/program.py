"""Checks, before any task starts, that the program of a task's command exists on PATH or among the
files of the run.

Pure, except that it looks at files. Problems that cannot be seen in the command appear only when
the task starts.
"""

from __future__ import annotations

import difflib
import os
import shutil

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Dict, List, Mapping, Optional, Tuple

# (what is wrong, advice, details), as in VerbError
Problem = Tuple[str, str, Dict[str, object]]
_COMMON_PROGRAMS = ("python", "python3", "bash", "env")


def find_program_problem(
    spec: wire.TaskSpec, cwd: str, inherited_env: Mapping[str, str]
) -> Optional[Problem]:
    """Return what is wrong with the task's program, or None. `inherited_env`: the environment to
    which the task's own variables are added."""
    first = spec.argv[0]
    path = os.pathsep.join(
        spec.path_prepend + [spec.env.get("PATH") or inherited_env.get("PATH") or os.defpath]
    )
    if "/" not in first and shutil.which(first, path=path) is None:
        return _unknown_program_problem(first, path)
    missing = _missing_file(spec.argv, cwd)
    if missing is not None:
        return "%s is not in the code" % missing, "see_command", {}
    if "/" in first and not os.access(os.path.join(cwd, first), os.X_OK):
        return "the file %s is not executable" % first, "make_executable", {"file": first}
    return None


def _unknown_program_problem(name: str, path: str) -> Problem:
    what = "there is no program %s on PATH (%s)" % (name, path)
    for similar in difflib.get_close_matches(name, _COMMON_PROGRAMS, n=1):
        return what, "similar_program", {"program": similar}
    return what, "install_program", {"program": name}


def _missing_file(argv: List[str], cwd: str) -> Optional[str]:
    if "/" in argv[0] and not os.path.exists(os.path.join(cwd, argv[0])):
        return argv[0]
    for word in argv[1:]:
        if not word.startswith("-"):
            is_missing = word.endswith(".py") and not os.path.exists(os.path.join(cwd, word))
            return word if is_missing else None
        if word in ("-m", "-c"):
            break
    return None
