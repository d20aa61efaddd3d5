"""Reads the arguments of run.prepare and checks the host's part before it is used."""

from __future__ import annotations

import json

from tfdeploy.agent import frames, wire
from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.errors import VerbError, is_safe_relative_path
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.call import Call, checked_name

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

    The blob first has the fields of this host, then the fields that are the same for all hosts of
    the run. The latter are the plan and some fields of `part`.
    """
    if not call.blob:
        return PrepareArguments(
            call.table("part"), call.table("plan"), call.table("secrets"), call.table("certs")
        )
    try:
        text, shared_blob = frames.decompress_first(call.blob)
        host_fields, shared_fields = json.loads(text), json.loads(frames.decompress(shared_blob))
        part, plan = dict(host_fields["part"], **shared_fields["part"]), dict(shared_fields["plan"])
        return PrepareArguments(
            part, plan, dict(host_fields.get("secrets") or {}), dict(host_fields.get("certs") or {})
        )
    except (frames.WireError, ValueError, KeyError, TypeError) as error:
        raise VerbError("bad_part", "the plan cannot be read: %s" % error) from error


def checked_host_part(arguments: PrepareArguments) -> wire.HostPart:
    """Check the host's part of the plan, and return it. Raises VerbError bad_part, bad_name."""
    try:
        part = wire.from_wire(wire.HostPart, arguments.part)
    except (TypeError, AttributeError) as error:
        raise VerbError(
            "bad_part", "the host's part of the plan cannot be read: %s" % error
        ) from error
    names = [part.run, part.job, part.host, part.release]
    for name in [*names, *(spec.role for spec in part.tasks), *part.links.values(), *part.parts]:
        checked_name(name)
    for numbers in part.parts.values():
        if not numbers or not all(isinstance(each, int) and each >= 0 for each in numbers):
            raise VerbError("bad_part", "the parts of its data sets cannot be read")
    for path in [*part.keep, *part.links, *(spec.cwd for spec in part.tasks if spec.cwd)]:
        if not is_safe_relative_path(path):
            raise VerbError("bad_name", "%r is not a path inside the code" % (path,))
    for spec in part.tasks:
        if spec.task != "%s:%d" % (spec.role, spec.index) or not spec.argv:
            what = "task %r is not %s:%s, or has no command" % (spec.task, spec.role, spec.index)
            raise VerbError("bad_part", what)
        try:
            wire.resolve_words(spec, part.texts)
        except ValueError as error:
            raise VerbError("bad_part", "%s: %s" % (spec.task, error)) from error
    return part
