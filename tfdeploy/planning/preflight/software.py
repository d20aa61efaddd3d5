"""Checks rsync, and that hosts have the same versions of Python, TensorFlow and Keras."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfdeploy.planning.host_checks import no_python_remedy
from tfdeploy.planning.preflight.case import HostCase, Problem
from tfdeploy.text.nexts import install_command
from tfdeploy.text.units import version_numbers

OLD_RSYNC = (3, 1)
# {field of HostFacts with a package's version: the package's name in messages}
PACKAGES = {"tensorflow": "TensorFlow", "tf_keras": "tf_keras", "keras": "Keras"}
COMPARED = ("python_version", *PACKAGES)


def python(case: HostCase) -> Iterator[Problem]:
    if case.facts.python is None:
        reasons = (each for each in case.facts.problems if case.host.python in each)
        why = next(reasons, f"there is no {case.host.python}")
        yield Problem(why, no_python_remedy(case.host, case.usual_versions.get("python")), "error")
        return
    if case.needs.requirements and case.facts.environment is None:
        yield Problem(
            f"there is no environment for the present content of {case.needs.requirements}",
            "`tfdeploy setup`",
            "error",
        )
    usual, version = case.usual_versions.get("python_version"), case.facts.python_version
    if usual and version and version_numbers(version)[:2] != version_numbers(usual)[:2]:
        yield Problem(
            f"Python {version} ({case.facts.python}), most hosts have {usual}",
            f"write `python: PATH` for {case.host.name} in the inventory, to use Python {usual}",
        )


def tensorflow(case: HostCase) -> Iterator[Problem]:
    """Yield a problem if TensorFlow or Keras is missing or has another version than on most hosts.

    There is a single problem for all these packages, because a host on which several of them differ
    probably just uses another Python.
    """
    facts, usual = case.facts, case.usual_versions
    lacks_tensorflow = case.needs.tensorflow and facts.tensorflow is None
    differing = [
        field for field in PACKAGES if usual.get(field) and getattr(facts, field) != usual[field]
    ]
    if facts.python is None or not (differing or lacks_tensorflow):
        return
    details, packages = [], []
    for field in dict.fromkeys([*["tensorflow"] * lacks_tensorflow, *differing]):
        name, own, most = PACKAGES[field], getattr(facts, field), usual.get(field)
        detail = f"{f'{name} {own}' if own else f'no {name}'}, most hosts have {most}"
        if lacks_tensorflow and field == "tensorflow":
            detail = f"the program imports TensorFlow, and {facts.python} has none"
        details.append(detail)
        packages.append(field if most in (None, "unknown") else f"{field}=={most}")
    fix = case.pip_install(*packages)
    if facts.environment is not None:
        fix = "`tfdeploy setup`"
    elif (python := usual.get("python")) and usual["tensorflow"] and python != facts.python:
        # Hosts report these paths, so they are quoted before a user pastes them into a shell.
        fix = (
            f"{case.host.name} uses {shlex.quote(facts.python)}, most hosts use "
            f"{shlex.quote(python)}: set {case.host.setting_with_place('python')}, or: {fix}"
        )
    yield Problem("; ".join(details), fix, "error" if lacks_tensorflow else "warning")


def rsync(case: HostCase) -> Iterator[Problem]:
    version = case.facts.rsync
    fix = install_command(case.host.name, "rsync", case.facts.user)
    if version is None:
        yield Problem("rsync is missing", fix, "error" if case.needs.sync else "warning")
    elif version_numbers(version.lstrip("v")) < OLD_RSYNC:
        yield Problem(f"rsync {version} is older than 3.1", fix)
