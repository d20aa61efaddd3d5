"""Refuses a program that the hosts' Python cannot parse, before anything is sent.

The program is parsed by the Python on this machine. So the result is certain only if the hosts have
the same version of Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Notes
from tfdeploy.planning.source.entry_point import PYTHON
from tfdeploy.planning.source.source import Program
from tfdeploy.text.units import version_numbers

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def refuse_unparsable(job: Job, program: Program, facts: Iterable[HostFacts]) -> None:
    """Raise Refused if this Python cannot parse the program and all hosts have the same version.

    If a host has another version of Python, that version may be able to parse the program. In that
    case this function raises nothing, and `notes` warns.
    """
    if job.command[0] in PYTHON and all(
        version_numbers(each.python_version)[:2] == sys.version_info[:2] for each in facts
    ):
        for file in program.unparsed:
            if file.is_certain:
                what = f"{file.where} does not parse: {file.error} (Python {HERE}, as on the hosts)"
                raise Refused(
                    what,
                    where=file.where,
                    next="correct the program at that line. Nothing was sent to the hosts",
                )


def notes(program: Program) -> Notes:
    return tuple(
        f"{file.where} does not parse with Python {HERE} on this machine: {file.error}"
        for file in program.unparsed
    )
