"""Read this task's role, index, mode and plan from environment variables, which the agent's
supervisor process sets. Write messages for the user to standard error."""

from __future__ import annotations

import os
import sys

# Only type checkers import typing, because its import would take several ms at each start of
# Python.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

_PLANNED = "TFDEPLOY_TASK_TF_CONFIG"
_printed: set[str] = set()


def role() -> str:
    """Return the role of this task; "" if the environment does not contain the role."""
    return os.environ.get("TFDEPLOY_TASK_ROLE", "")


def index() -> Optional[int]:
    """Return the index of this task; None if the environment does not contain a whole number for
    the index."""
    text = os.environ.get("TFDEPLOY_TASK_INDEX", "")
    return int(text) if text.isdigit() else None


def mode() -> str:
    """Return the mode of the job; "" if the environment does not contain the mode."""
    return os.environ.get("TFDEPLOY_TASK_MODE", "")


# Mode -> its traits. The table is for an agent that is too old to set TFDEPLOY_TASK_TRAITS.
_TRAITS_OF = {
    "": ("own_session",),
    "async": ("lasting_ps", "own_session"),
    "sync": ("synchronous", "lasting_ps"),
    "coordinator": ("chief_saves",),
    "ingraph": ("one_client",),
}


def has_trait(trait: str) -> bool:
    """Return True if the mode of the job has this trait. `Trait` in tfdeploy/model/modes.py lists
    the traits."""
    traits = os.environ.get("TFDEPLOY_TASK_TRAITS")
    return trait in (_TRAITS_OF.get(mode(), ()) if traits is None else traits.split(","))


def is_version1() -> bool:
    """Return True if `import tensorflow` must behave like TensorFlow 1."""
    return os.environ.get("TFDEPLOY_TASK_COMPAT") == "v1"


def replaces_program_cluster() -> bool:
    """Return True if the cluster of the plan replaces a cluster that is written in the program."""
    return os.environ.get("TFDEPLOY_TASK_CLUSTER") == "planned"


def save_tf_config() -> None:
    """Save the TF_CONFIG of the plan, so that this process and its child processes can still read
    it after the program has overwritten TF_CONFIG."""
    if replaces_program_cluster() and "TF_CONFIG" in os.environ:
        os.environ.setdefault(_PLANNED, os.environ["TF_CONFIG"])


def tf_config() -> Dict[str, Any]:
    """Return the TF_CONFIG of the plan, even if the program has overwritten it; {} if the plan has
    no TF_CONFIG."""
    import json

    config: Dict[str, Any] = json.loads(os.environ.get(_PLANNED) or "{}")
    return config


def planned_task() -> Tuple[str, int]:
    """Return the type and index of this task in the plan's TF_CONFIG. Without a TF_CONFIG, return
    the task's role and index."""
    config_task = tf_config().get("task") or {}
    return str(config_task.get("type", role())), int(config_task.get("index", index() or 0))


def print_once(text: str) -> None:
    """Write a line to standard error. Each text is written only once per process. Never raises."""
    if text in _printed:
        return
    _printed.add(text)
    try:
        sys.stderr.write("tfdeploy: %s\n" % text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # Standard error is closed, or the program has set it to None.
        pass


def print_failure(patch: str, error: BaseException) -> None:
    """Report on standard error that a patch failed. `patch`: the name of the patch, of which only
    the text after the last dot is shown."""
    print_once(
        "%s is not in effect here: %s: %s"
        % (patch.rpartition(".")[2], type(error).__name__, " ".join(str(error).split())[:300])
    )
