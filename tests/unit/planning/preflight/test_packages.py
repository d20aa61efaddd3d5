"""Test what a preflight says about imported modules that a host lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.probed_hosts import (
    ALL,
    FactsOf,
    plan_for,
    seen_of,
)
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.output.check import Check
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.preflight.judge import (
    ProbeResults,
    check_hosts,
)
from tfdeploy.planning.source.imports import Import

IMPORTS = (
    Import("cv2", "train.py:2", always_reached=True),
    Import("gym", "env.py:9", always_reached=False),
    Import("numpy", "train.py:1", always_reached=True),
)


def failed_package_checks(
    facts_of: FactsOf, needs: Needs, *modules: str, **of_n2: Any
) -> list[Check]:
    """Return the checks that fail if these Python modules are missing on n2."""
    asked = {
        module_import.module: module_import.module not in modules for module_import in needs.imports
    }
    checks = check_hosts(
        ProbeResults(seen_of(facts_of, modules=asked, **of_n2), needs), ("packages",)
    )
    assert all(check.ok for host in ("n1", "n3") for check in checks[host])
    return [check for check in checks["n2"] if not check.ok]


def test_missing_packages_are_reported_with_lines_that_install_them(facts_of: FactsOf) -> None:
    sure, unsure = failed_package_checks(
        facts_of, Needs(imports=IMPORTS, tensorflow=True), "cv2", "gym"
    )
    assert (sure.level, unsure.level) == ("error", "warning")
    assert sure.detail == "the program imports cv2 (train.py:2), and /usr/bin/python3 lacks it"
    assert unsure.detail == "the program may import gym (env.py:9), and /usr/bin/python3 lacks it"
    assert sure.fix == (
        "write `setup: {requirements: requirements.txt}` into the job file and "
        "opencv-python-headless, tensorflow==2.21.0, numpy into requirements.txt, then run "
        "`tfdeploy setup`; or: `tfdeploy exec --limit n2 -- /usr/bin/python3 -m pip "
        "install opencv-python-headless`"
    )
    [failure] = failed_package_checks(
        facts_of,
        Needs(imports=IMPORTS, requirements_found="../needs/requirements.txt"),
        "cv2",
        "numpy",
    )
    assert "cv2 (train.py:2), numpy (train.py:1), and /usr/bin/python3 lacks them" in failure.detail
    assert "{requirements: ../needs/requirements.txt}" in (failure.fix or "")


def test_fix_names_python_of_other_hosts_that_has_package(
    facts_of: FactsOf,
) -> None:
    seen = seen_of(facts_of, modules={"numpy": True})
    poor = replace(seen["n1"].facts, python="/usr/bin/python3.9", modules={"numpy": False})
    seen["n1"] = replace(seen["n1"], facts=poor)
    checks = check_hosts(ProbeResults(seen, Needs(imports=IMPORTS[2:])), ("packages",))
    [failure] = [check for check in checks["n1"] if not check.ok]
    assert failure.fix == (
        "set `python:` to /usr/bin/python3, which has numpy on other hosts, or: "
        "`tfdeploy exec --limit n1 -- /usr/bin/python3.9 -m pip install numpy`"
    )


def test_misspelt_import_of_own_module_is_recognised(facts_of: FactsOf) -> None:
    imports = (Import("helper", "train.py:2", always_reached=True),)
    [failure] = failed_package_checks(
        facts_of, Needs(imports=imports, own_modules={"helpers", "train"}), "helper"
    )
    assert failure.fix == "did you mean helpers, which is in the code?"


def test_packages_missing_from_environment_of_setup(facts_of: FactsOf) -> None:
    needs = Needs(imports=IMPORTS, requirements="requirements.txt")
    [failure] = failed_package_checks(
        facts_of,
        needs,
        "cv2",
        environment="/home/ml/tfdeploy/.envs/x",
        python="/home/ml/tfdeploy/.envs/x/bin/python",
    )
    assert (
        failure.fix
        == "write opencv-python-headless into requirements.txt, then run `tfdeploy setup`"
    )


@pytest.mark.parametrize(
    ("module", "left_out", "fix"),
    [
        ("urllib2", {}, "urllib2 is a module of Python 2: `2to3 -w train.py`"),
        ("imp", {}, "imp is a part of Python that this Python 3.11.2 lacks: write `python: PATH`"),
        ("tkinter", {}, "tkinter is a part of Python"),
        (
            "model_pb2",
            {"model_pb2": ""},
            "model_pb2 lies in the code's folder and is not sent: "
            "remove or narrow the pattern of git",
        ),
        (
            "model_pb2",
            {"model_pb2": "`*_pb2.py` (.gitignore:2)"},
            "model_pb2 lies in the code's folder and is not sent: remove or narrow the pattern "
            "`*_pb2.py` (.gitignore:2)",
        ),
    ],
)
def test_module_without_known_package(
    facts_of: FactsOf, module: str, left_out: dict[str, str], fix: str
) -> None:
    needs = Needs(
        imports=(Import(module, "train.py:3", always_reached=True),), unsent_imports=left_out
    )
    [failure] = failed_package_checks(facts_of, needs, module)
    assert (failure.level, (failure.fix or "")[: len(fix)]) == ("error", fix)


def test_host_with_only_servers_needs_no_package(
    facts_of: FactsOf, job: Job, inventory: Callable[..., Inventory]
) -> None:
    asked = replace(job, mode="ingraph")
    seen = seen_of(facts_of, protect=ALL)
    plan = plan_for(inventory(chief="n1", worker="n2 n3"), asked, seen)
    assert failed_package_checks(facts_of, Needs(imports=IMPORTS, plan=plan), "cv2") == []
    assert len(failed_package_checks(facts_of, Needs(imports=IMPORTS), "cv2")) == 1
    assert failed_package_checks(facts_of, Needs(imports=IMPORTS, hosts=("n1", "n3")), "cv2") == []


def test_file_that_hides_a_module_of_python_is_reported(facts_of: FactsOf) -> None:
    checks = check_hosts(
        ProbeResults(seen_of(facts_of), Needs(hidden={"queue": "src/queue.py"})), ("packages",)
    )
    [failure] = checks["n1"]
    assert failure.level == "warning" and "src/queue.py of the code replaces" in failure.detail
    assert (failure.fix or "").startswith("rename src/queue.py")
