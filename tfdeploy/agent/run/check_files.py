"""Whether the files of a run's folder are what we write there. One that is damaged must not spoil a look at the others."""

from __future__ import annotations

import json
import math
import os

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Any, Dict, List, Optional

_PLAIN = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_ENDING = {  # of one attempt: shared_state.ending_of
    **dict.fromkeys(("time", "ended"), "float"),
    **dict.fromkeys(("attempt", "round", "exit_code", "signal"), "int"),
    **dict.fromkeys(("final", "again", "up"), "bool"),
    **dict.fromkeys(("task", "host", "reason"), "str"),
}
_ENDINGS = ("first_death", "ended_tasks")
_FLAT = (*_ENDINGS, "health", "restarts", "round")
_WORDS = {"phase": wire.PHASES, "state": wire.TASK_STATES, "outcome": wire.OUTCOMES}


def wrong(workdir: str, job: str, run: str, host: str) -> Optional[str]:
    """What is wrong with a host's part of a run, in words that begin with the file; None: nothing."""
    folder = layout.host_dir(workdir, job, run, host)
    said, part = _look(os.path.join(folder, "part.json"), wire.HostPart)
    if said is not None or part is None:
        return said or "part.json: is gone"
    if (part["run"], part["job"]) != (run, job):
        return "part.json: is of run %s of job %s" % (part["run"], part["job"])
    said = _look(os.path.join(folder, "state.json"), wire.HostRunState)[0]
    for task in part.get("tasks", ()):
        if said is None:
            said = _look(os.path.join(layout.task_dir(workdir, job, run, host, task["task"]), "status.json"), wire.TaskStatus)[0]
    return said


def _look(path: str, record: Any) -> "tuple[Optional[str], Optional[Dict[str, Any]]]":
    """(what is wrong, its fields). A file that is not there is not wrong."""
    name = os.path.basename(path)
    try:
        with open(path, "rb") as stream:
            fields = json.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return "%s: %s" % (name, error.strerror), None
    except (ValueError, RecursionError):
        return "%s: is damaged" % name, None
    field = misfit(record, fields)
    return ("%s: %s" % (name, field) if field else None), fields


def misfit(record: Any, fields: Any) -> Optional[str]:
    """What keeps `fields` from being that record of `wire`, as `from_wire` needs it; None: nothing."""
    if not isinstance(fields, dict):
        return "is damaged"
    for name, kind in record.__annotations__.items():
        if name not in fields:
            if name in record.REQUIRED:
                return "%s is missing" % name
        elif not _fits(kind, fields[name], record.FIELDS[name].get("of")) or not _known(name, fields[name]):
            return "%s is wrong" % name
        elif "Dict[str, Any]" in kind and name in _FLAT and not _are_flat(_rows(kind, fields[name]), name in _ENDINGS):
            return "%s is wrong inside" % name
    return None


def _rows(kind: str, value: Any) -> List[Dict[str, Any]]:
    if kind.startswith("Optional["):
        return [] if value is None else [value]
    return list(value.values())


def _are_flat(rows: List[Dict[str, Any]], endings: bool) -> bool:
    """Of plain values; those of endings are of their types, and what a later version adds to them is not looked at."""
    if endings and not all(row.get("outcome") in wire.OUTCOMES for row in rows):
        return False
    kinds = {name: (kind,) for name, kind in _ENDING.items()} if endings else {}
    values = [(name, value) for row in rows for name, value in row.items() if value is not None and (name in kinds or not kinds)]
    return all(any(_fits(kind, value, None) for kind in kinds.get(name, _PLAIN)) for name, value in values)


def _known(name: str, value: Any) -> bool:
    return value is None or name not in _WORDS or value in _WORDS[name]


def _fits(kind: str, value: Any, of: Any) -> bool:
    if kind.startswith("Optional["):
        return value is None or _fits(kind[9:-1], value, of)
    if kind.startswith("List["):
        return isinstance(value, list) and all(_fits(kind[5:-1], each, of) for each in value)
    if kind.startswith("Dict[str, "):
        return isinstance(value, dict) and all(_fits(kind[10:-1], each, of) for each in value.values())
    if of is not None:
        return misfit(of, value) is None
    if kind not in _PLAIN:
        return kind == "Any"
    if isinstance(value, bool) != (kind == "bool") or not isinstance(value, _PLAIN[kind]):
        return False
    return not isinstance(value, float) or math.isfinite(value)
