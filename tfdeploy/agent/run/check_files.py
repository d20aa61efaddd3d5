"""Check that the files in a run's folder have the form that the agent writes, so that one damaged
run does not prevent answers about the other runs."""

from __future__ import annotations

import math
import os

from tfdeploy.agent import json_text, layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Optional
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

_PLAIN_TYPES = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_CHOICES = {"phase": wire.PHASES, "state": wire.TASK_STATES, "outcome": wire.OUTCOMES}
# The types of the keys of the dicts in SHAPES. These types are declared in shapes.py too. That
# module is not imported here, because it imports `typing`, which takes time. A key has the same
# type in all of these dicts.
KEY_TYPES = {
    key: kind
    for kind, keys in {
        "str": "error first host how outcome reason task word",
        "int": "attempt count exit_code n quick round same signal",
        "float": "delay_s since time",
        "bool": "again final up",
    }.items()
    for key in keys.split()
}
_ENDING_KEYS = "attempt round exit_code signal final again up reason"
# Name of a type in shapes.py -> (keys that such a dict must have, keys that it may have).
SHAPES = {
    name: (needed.split(), optional.split())
    for name, needed, optional in (
        ("Ending", "outcome time", "host " + _ENDING_KEYS),
        ("Death", "outcome time task host", _ENDING_KEYS),
        ("Health", "word attempt reason since", ""),
        ("RestartCount", "attempt count quick delay_s", "round how error first same"),
        ("GangRound", "n time task count quick delay_s", "reason error first same"),
    )
}


def find_damage(paths: RunPaths) -> Optional[str]:
    """Return what is wrong with the files of a run on one host, or None if nothing is wrong. The
    returned text begins with the name of the damaged file."""
    try:
        part = _read_valid_fields(paths.file(layout.PART), wire.HostPart)
        if part is None:
            return "%s: is gone" % layout.PART
        if (part["run"], part["job"]) != (paths.run, paths.job):
            return "%s belongs to run %s of job %s" % (layout.PART, part["run"], part["job"])
        _read_valid_fields(paths.state_file, wire.HostRunState)
        for task in part.get("tasks", ()):
            _read_valid_fields(paths.status_file(task["task"]), wire.TaskStatus)
    except ValueError as error:
        return str(error)
    return None


def _read_valid_fields(path: str, record: Any) -> Optional[Unchecked]:
    """Return the fields in the file, or None if the file is missing. Raises ValueError, which says
    what is wrong with the file."""
    try:
        with open(path, "rb") as stream:
            fields: Unchecked = json_text.loads(stream.read())
        problem = find_invalid_field(record, fields)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = error.strerror
    except (ValueError, RecursionError):
        problem = "is damaged"
    if problem is None:
        return fields
    raise ValueError("%s: %s" % (os.path.basename(path), problem))


def find_invalid_field(record_class: Any, fields: Any) -> Optional[str]:
    """Return why `from_wire` cannot make an object of `record_class` from `fields`, or None if
    it can."""
    if not isinstance(fields, dict):
        return "is damaged"
    for name, kind in record_class.__annotations__.items():
        if name not in fields:
            if name in record_class.REQUIRED:
                return "%s is missing" % name
        elif not _is_valid(name, kind, fields[name], record_class.FIELDS[name].get("of")):
            return "%s is wrong" % name
    return None


def _is_valid(name: str, kind: str, value: Any, item_record: Any = None) -> bool:
    """Return whether the value has the type `kind`. If the key `name` allows only certain values,
    the value must also be one of these."""
    is_known = value is None or name not in _CHOICES or value in _CHOICES[name]
    return is_known and _has_type(kind, value, item_record)


def _has_type(kind: str, value: Any, item_record: Any) -> bool:
    if kind.startswith("Optional["):
        return value is None or _has_type(kind[9:-1], value, item_record)
    if kind.startswith("List["):
        return isinstance(value, list) and all(
            _has_type(kind[5:-1], each, item_record) for each in value
        )
    if kind.startswith("Dict[str, "):
        return isinstance(value, dict) and all(
            _has_type(kind[10:-1], each, item_record) for each in value.values()
        )
    if item_record is not None:
        return find_invalid_field(item_record, value) is None
    if kind in SHAPES:
        return isinstance(value, dict) and _has_shape(kind, value)
    if kind not in _PLAIN_TYPES:
        return kind == "PlanWord"  # wire.resolve_word checks such a value when it is used
    if isinstance(value, bool) != (kind == "bool") or not isinstance(value, _PLAIN_TYPES[kind]):
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _has_shape(kind: str, fields: Unchecked) -> bool:
    """Return whether the fields have the keys in SHAPES and the types in KEY_TYPES. A key with the
    value None counts as missing. Keys that are not in SHAPES, which a later version may add, are
    not checked."""
    needed, optional = SHAPES[kind]
    present = [name for name in optional if fields.get(name) is not None]
    return all(_is_valid(name, KEY_TYPES[name], fields.get(name)) for name in needed + present)
