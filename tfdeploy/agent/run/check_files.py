"""Check that the files in a run's folder have the form that the agent writes, so that one damaged
run does not prevent answers about the other runs."""

from __future__ import annotations

import math
import os

from tfdeploy.agent import json_text, layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, Optional, Tuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

_PLAIN = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_WORDS = {"phase": wire.PHASES, "state": wire.TASK_STATES, "outcome": wire.OUTCOMES}
_STARTS = {"count": "int", "quick": "int", "delay_s": "float"}
_SAME_ERROR = {"error": "str", "same": "int"}
# Keys and types of dicts that shapes.py declares. shapes.py is not imported here, because it
# imports `typing`, which takes time.
NEEDED: Dict[str, Dict[str, str]] = {
    "Ending": {"outcome": "str", "time": "float"},
    "Death": {"outcome": "str", "time": "float", "task": "str", "host": "str"},
    "Health": {"word": "str", "attempt": "int", "reason": "str", "since": "float"},
    "RestartCount": {"attempt": "int", **_STARTS},
    "GangRound": {"n": "int", "time": "float", "task": "str", **_STARTS},
}
_OF_AN_END = {
    **dict.fromkeys(("attempt", "round", "exit_code", "signal"), "int"),
    **dict.fromkeys(("final", "again", "up"), "bool"),
    "reason": "str",
}
OPTIONAL: Dict[str, Dict[str, str]] = {
    "Ending": {**_OF_AN_END, "host": "str"},
    "Death": _OF_AN_END,
    "Health": {},
    "RestartCount": {"round": "int", "how": "str", **_SAME_ERROR},
    "GangRound": {"reason": "str", **_SAME_ERROR},
}


def find_damage(workdir: str, job: str, run: str, host: str) -> Optional[str]:
    """Return what is wrong with the files that a host has of a run, as a text that begins with the
    name of a file. Return None if nothing is wrong."""
    folder = layout.host_dir(workdir, job, run, host)
    problem, part = _check_file(os.path.join(folder, layout.PART), wire.HostPart)
    if problem is not None or part is None:
        return problem or "%s: is gone" % layout.PART
    if (part["run"], part["job"]) != (run, job):
        return "%s: is of run %s of job %s" % (layout.PART, part["run"], part["job"])
    problem = _check_file(os.path.join(folder, layout.STATE), wire.HostRunState)[0]
    for task in part.get("tasks", ()):
        if problem is None:
            problem = _check_file(
                layout.status_file(workdir, job, run, host, task["task"]), wire.TaskStatus
            )[0]
    return problem


def _check_file(path: str, record: Any) -> Tuple[Optional[str], Optional[Unchecked]]:
    """Return (what is wrong with the file, the fields in the file). For a missing file, which is no
    error, both are None."""
    name = os.path.basename(path)
    try:
        with open(path, "rb") as stream:
            fields = json_text.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return "%s: %s" % (name, error.strerror), None
    except (ValueError, RecursionError):
        return "%s: is damaged" % name, None
    field = find_mismatch(record, fields)
    return ("%s: %s" % (name, field) if field else None), fields


def find_mismatch(record: Any, fields: Any) -> Optional[str]:
    """Return why `from_wire` cannot make an object of the class `record` from `fields`, or None if
    it can."""
    if not isinstance(fields, dict):
        return "is damaged"
    for name, kind in record.__annotations__.items():
        if name not in fields:
            if name in record.REQUIRED:
                return "%s is missing" % name
        elif not _has_type(kind, fields[name], record.FIELDS[name].get("of")) or not _is_known_word(
            name, fields[name]
        ):
            return "%s is wrong" % name
    return None


def _is_known_word(name: str, value: Any) -> bool:
    return value is None or name not in _WORDS or value in _WORDS[name]


def _has_type(kind: str, value: Any, of: Any) -> bool:
    if kind.startswith("Optional["):
        return value is None or _has_type(kind[9:-1], value, of)
    if kind.startswith("List["):
        return isinstance(value, list) and all(_has_type(kind[5:-1], each, of) for each in value)
    if kind.startswith("Dict[str, "):
        return isinstance(value, dict) and all(
            _has_type(kind[10:-1], each, of) for each in value.values()
        )
    if of is not None:
        return find_mismatch(of, value) is None
    if kind in NEEDED:
        return isinstance(value, dict) and _has_shape(kind, value)
    if kind not in _PLAIN:
        return kind == "PlanWord"  # checked by wire.resolve_word
    if isinstance(value, bool) != (kind == "bool") or not isinstance(value, _PLAIN[kind]):
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _has_shape(kind: str, fields: Unchecked) -> bool:
    """Return whether the fields have the types in NEEDED and OPTIONAL. Keys that a later version
    adds are not checked; null counts as missing."""
    needed = all(
        _has_type(type_name, fields.get(name), None) and _is_known_word(name, fields[name])
        for name, type_name in NEEDED[kind].items()
    )
    more = (
        (type_name, fields[name])
        for name, type_name in OPTIONAL[kind].items()
        if fields.get(name) is not None
    )
    return needed and all(_has_type(type_name, value, None) for type_name, value in more)
