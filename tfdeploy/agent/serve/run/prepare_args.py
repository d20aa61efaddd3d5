"""Reads the arguments of run.prepare and checks the host's part before it is used."""

from __future__ import annotations

import json
import os

from tfdeploy.agent import frames, wire
from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.errors import NAME, VerbError
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.call import Call

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked


class PrepareArguments(NamedTuple):
    """The arguments of run.prepare, as JSON objects. Only `part` is checked in this module."""

    part: Unchecked
    plan: Unchecked
    secrets: Unchecked
    certs: Unchecked


def read_arguments(call: Call) -> PrepareArguments:
    """Read the arguments from the call's blob, or from the call's fields if it has no blob. Raises
    VerbError bad_part.

    The blob holds this host's own fields, and then the fields that are equal on all hosts of the
    run: the plan, and some fields of `part`.
    """
    if not call.blob:
        return PrepareArguments(
            call.table("part"), call.table("plan"), call.table("secrets"), call.table("certs")
        )
    try:
        text, rest = frames.decompress_first(call.blob)
        own, shared = json.loads(text), json.loads(frames.decompress(rest))
        part, plan = dict(own["part"], **shared["part"]), dict(shared["plan"])
        return PrepareArguments(
            part, plan, dict(own.get("secrets") or {}), dict(own.get("certs") or {})
        )
    except (frames.WireError, ValueError, KeyError, TypeError) as error:
        raise VerbError("bad_part", "the plan cannot be read: %s" % error) from error


def checked_part(arguments: PrepareArguments) -> wire.HostPart:
    """Check the host's part of the plan, and return it. Raises VerbError bad_part, bad_name."""
    try:
        part = wire.from_wire(wire.HostPart, arguments.part)
    except (TypeError, AttributeError) as error:
        raise VerbError(
            "bad_part", "the host's part of the plan cannot be read: %s" % error
        ) from error
    names = (
        [part.run, part.job, part.host, part.release]
        + [spec.role for spec in part.tasks]
        + list(part.links.values())
    )
    names += list(part.parts)
    if not all(
        numbers and all(isinstance(each, int) and each >= 0 for each in numbers)
        for numbers in part.parts.values()
    ):
        raise VerbError("bad_part", "the parts of its data sets cannot be read")
    for name in names:
        if not isinstance(name, str) or not NAME.match(name):
            raise VerbError("bad_name", "%r is not a name that tfdeploy uses" % (name,))
    for path in list(part.keep) + list(part.links) + [spec.cwd for spec in part.tasks if spec.cwd]:
        if (
            os.path.isabs(path)
            or ".." in path.split("/")
            or os.path.normpath(path) != path
            or path == "."
        ):
            raise VerbError("bad_name", "%r is not a path inside the code" % (path,))
    for spec in part.tasks:
        if spec.task != "%s:%d" % (spec.role, spec.index) or not spec.argv:
            raise VerbError(
                "bad_part",
                "task %r is not %s:%s, or has no command" % (spec.task, spec.role, spec.index),
            )
        try:
            wire.resolve_words(spec, part.texts)
        except ValueError as error:
            raise VerbError("bad_part", "%s: %s" % (spec.task, error)) from error
    return part
