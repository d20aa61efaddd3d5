"""Refuses a program that the hosts' Python cannot parse, before anything is sent.

The Python on this machine parses the program, so the hosts must have the same version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Notes
from tfdeploy.model.text.units import version_numbers
from tfdeploy.planning.source.entry_point import PYTHON
from tfdeploy.planning.source.source import Program

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def check(job: Job, program: Program, facts: Iterable[HostFacts]) -> None:
    """Raise Refused if the program does not parse here, and all hosts have the same Python version.

    With another version, the program may still parse on the hosts, so `notes` only warns.
    """
    if job.command[0] in PYTHON and all(
        version_numbers(each.python_version)[:2] == sys.version_info[:2] for each in facts
    ):
        for file in program.unparsed:
            if file.certain:
                what = f"{file.where} does not parse: {file.error} (Python {HERE}, as on the hosts)"
                raise Refused(what, where=file.where, next="correct it there; nothing was sent")


def notes(program: Program) -> Notes:
    return tuple(
        f"{file.where} does not parse (Python {HERE} here): {file.error}"
        for file in program.unparsed
    )
