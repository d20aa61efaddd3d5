"""Rules about programs: Python, TensorFlow and Keras, the same everywhere; rsync."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.planning.preflight.case import Case, Problem, as_numbers

OLD_RSYNC = (3, 1)
PACKAGES = {"tensorflow": "TensorFlow", "tf_keras": "tf_keras", "keras": "Keras"}  # field of HostFacts -> its name
COMPARED = ("python_version", *PACKAGES)


def python(case: Case) -> Iterator[Problem]:
    if case.facts.python is None:
        why = next((each for each in case.facts.problems if case.host.python in each), f"there is no {case.host.python}")
        yield Problem("error", why, f"write `python: PATH` of {case.host.name} in the inventory, or install python3 there")
        return
    if case.needs.requirements and case.facts.environment is None:
        yield Problem("error", f"the environment of {case.needs.requirements} (as it is now) is not there", "tfdeploy setup")
    usual, found = case.usual.get("python_version"), case.facts.python_version
    if usual and found and as_numbers(found)[:2] != as_numbers(usual)[:2]:
        detail = f"Python {found} ({case.facts.python}), most have {usual}"
        yield Problem("warning", detail, f"write `python: PATH` of Python {usual} for {case.host.name} in the inventory")


def tensorflow(case: Case) -> Iterator[Problem]:
    if case.facts.python is None:
        return
    for field, name in PACKAGES.items():
        found, usual = getattr(case.facts, field), case.usual.get(field)
        install = f"{case.facts.python} -m pip install {field}" + (f"=={usual}" if usual and usual != "unknown" else "")
        fix = f"{install} (there)" if case.facts.environment is None else "tfdeploy setup"
        if found is None and field == "tensorflow" and case.needs.tensorflow:
            yield Problem("error", f"the program imports TensorFlow, and {case.facts.python} has none", fix)
        elif usual and found != usual:
            yield Problem("warning", f"{f'{name} {found}' if found else f'no {name}'}, most have {usual}", fix)


def rsync(case: Case) -> Iterator[Problem]:
    found = case.facts.rsync
    if found is None:
        fix = "apt-get install rsync, or dnf install rsync (as root there)"
        yield Problem("error" if case.needs.sync else "warning", "rsync is missing", fix)
    elif as_numbers(found.lstrip("v")) < OLD_RSYNC:
        yield Problem(
            "warning", f"rsync {found} is older than 3.1", "apt-get install rsync, or dnf upgrade rsync (as root there)"
        )
