"""Checks whether the host's Python has the modules that the program imports."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfdeploy.model.output.check import Level
from tfdeploy.planning.preflight.case import HostCase, Problem
from tfdeploy.planning.source import packages as package_names
from tfdeploy.planning.source import python2
from tfdeploy.planning.source.imports import Import
from tfdeploy.text.nexts import most_similar
from tfdeploy.text.units import list_first

_SHOWN = 5
_LISTED = 12  # limits the number of requirement lines that one fix lists
# {whether every run imports the module: level of the problem if the module is missing}
_LEVELS: dict[bool, Level] = {True: "error", False: "warning"}


def packages(case: HostCase) -> Iterator[Problem]:
    """Yield a problem for imported modules that the host lacks, or that a file of the code hides.

    A missing module is an error if every run of the program reaches the import, else a warning.
    """
    for module, file in case.needs.hidden.items():
        yield Problem(
            f"{file} of the code replaces the module {module} for all that import it, also for "
            "Python's own modules and for packages",
            f"rename {file}, and correct the program's imports of it",
        )
    lacking = [each for each in case.needs.imports if case.facts.modules.get(each.module) is False]
    if not lacking or not case.needs.runs_user_program(case.host.name):
        return
    fixes = {each: _missing_module_fix(case, each) for each in lacking}
    for sure, level in _LEVELS.items():
        for fix in dict.fromkeys(fixes.values()):
            missing = [
                each for each in lacking if each.always_reached is sure and fixes[each] == fix
            ]
            modules = list_first([f"{each.module} ({each.where})" for each in missing], _SHOWN)
            imports, them = "imports" if sure else "may import", "them" if missing[1:] else "it"
            if missing:
                yield Problem(
                    f"the program {imports} {modules}, and {case.facts.python} lacks {them}",
                    fix or _install_advice(case, missing),
                    level,
                )


def _missing_module_fix(case: HostCase, missing: Import) -> str:
    """Return the fix for a missing module; "" if the fix is to install a package."""
    module = missing.module
    if (pattern := case.needs.unsent_imports.get(module)) is not None:
        return (
            f"{module} lies in the code's folder and is not sent: remove or narrow the pattern "
            f"{pattern or 'of git or .tfdeployignore that leaves it out'}"
        )
    if module in python2.MODULES:
        return f"{module} is a module of Python 2: `2to3 -w {missing.where.rpartition(':')[0]}`"
    if near := most_similar(module, case.needs.own_modules, 0.8):
        return f"did you mean {near}, which is in the code?"
    if package_names.package_providing(module):
        return ""
    # The module is missing because a newer Python has dropped it, or because the system has it in a
    # separate package.
    return (
        f"{module} is a part of Python that this Python {case.facts.python_version} lacks: write "
        f"`python: PATH` for {case.host.name} in the inventory, to use a Python that has {module}"
    )


def _install_advice(case: HostCase, missing: list[Import]) -> str:
    """Return how to install the packages that provide these modules."""
    packages = [package_names.package_providing(each.module) for each in missing]
    wanted = [*dict.fromkeys(filter(None, packages))]
    if case.facts.environment is not None:
        return (
            f"write {', '.join(wanted)} into {case.needs.requirements}, then run `tfdeploy setup`"
        )
    file = case.needs.requirements_found or "requirements.txt"
    lines = [*wanted, *(line for line in _present_requirements(case) if line not in wanted)]
    listed = ", ".join(lines if len(lines) <= _LISTED else [*lines[:_LISTED], "..."])
    install = case.pip_install(*wanted)
    python = case.python_by_module.get(missing[0].module)
    if python and python != case.facts.python:
        # The system's Python may refuse pip (PEP 668). So the text first suggests to use the same
        # Python as other hosts.
        return (
            f"set {case.host.setting_with_place('python')} to {shlex.quote(python)}, which has "
            f"{missing[0].module} on other hosts, or: {install}"
        )
    return (
        f"write `setup: {{requirements: {file}}}` into the job file and {listed} into {file}, "
        f"then run `tfdeploy setup`; or: {install}"
    )


def _present_requirements(case: HostCase) -> Iterator[str]:
    """Yield requirement lines for those imported modules that the host's Python already has.

    An environment that `tfdeploy setup` makes is empty at first, so its requirements must name
    these modules too.
    """
    if case.needs.tensorflow and case.facts.tensorflow:
        yield f"tensorflow=={case.facts.tensorflow}"
    for each in case.needs.imports:
        name = package_names.package_providing(each.module)
        if name and case.facts.modules.get(each.module):
            yield name
