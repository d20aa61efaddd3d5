"""This task's role, index and mode, from the environment that the agent's supervisor set.

Also messages for the user: a line on standard error, each text once per process.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing would cost each start of Python several ms
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

_PLANNED = "TFDEPLOY_TASK_TF_CONFIG"
_said: set[str] = set()


def role() -> str:
    return os.environ.get("TFDEPLOY_TASK_ROLE", "")


def index() -> Optional[int]:
    """None where the environment has no whole number."""
    text = os.environ.get("TFDEPLOY_TASK_INDEX", "")
    return int(text) if text.isdigit() else None


def mode() -> str:
    """The mode of the job; "" where the environment has none."""
    return os.environ.get("TFDEPLOY_TASK_MODE", "")


# mode -> what a version before TFDEPLOY_TASK_TRAITS meant by its name
_TRAITS_OF = {
    "": ("own_session",),
    "async": ("lasting_ps", "own_session"),
    "sync": ("synchronous", "lasting_ps"),
    "coordinator": ("chief_saves",),
    "ingraph": ("one_client",),
}


def has(trait: str) -> bool:
    """Whether the mode has this trait: one of `Trait` in tfdeploy/model/modes.py."""
    said = os.environ.get("TFDEPLOY_TASK_TRAITS")
    return trait in (_TRAITS_OF.get(mode(), ()) if said is None else said.split(","))


def version1() -> bool:
    """Whether `import tensorflow` is to give TensorFlow 1."""
    return os.environ.get("TFDEPLOY_TASK_COMPAT") == "v1"


def planned_cluster() -> bool:
    """Whether a cluster that the program writes gives way to the planned one."""
    return os.environ.get("TFDEPLOY_TASK_CLUSTER") == "planned"


def keep_tf_config() -> None:
    """Remembers, for this process and those that it starts, the TF_CONFIG that the plan gave."""
    if planned_cluster() and "TF_CONFIG" in os.environ:
        os.environ.setdefault(_PLANNED, os.environ["TF_CONFIG"])


def tf_config() -> Dict[str, Any]:
    """The plan's TF_CONFIG, whatever the program has made of its own; empty where there is none."""
    import json

    config: Dict[str, Any] = json.loads(os.environ.get(_PLANNED) or "{}")
    return config


def planned_task() -> Tuple[str, int]:
    """Type and index of this task in the plan's TF_CONFIG; its role and index where there is
    none."""
    said = tf_config().get("task") or {}
    return str(said.get("type", role())), int(said.get("index", index() or 0))


def say(text: str) -> None:
    """One line on standard error; never fails, never repeats itself."""
    if text in _said:
        return
    _said.add(text)
    try:
        sys.stderr.write("tfdeploy: %s\n" % text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed, or set to None
        pass


def say_failed(what: str, error: BaseException) -> None:
    """`what`: the name of a module, of which the last part is shown."""
    say(
        "%s is not in effect here: %s: %s"
        % (what.rpartition(".")[2], type(error).__name__, " ".join(str(error).split())[:300])
    )
