"""Test which interpreter the probe asks for."""

from __future__ import annotations

import pytest

from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.operations.launch import probe_questions
from tfdeploy.tree import EnvironmentRecipe

HOST = Host(name="n1", address="192.0.2.11", python="/opt/inventory/bin/python")


def asked_python(*command: str, recipe: EnvironmentRecipe | None = None) -> object:
    job = Job(name="digits", mode="async", command=command, code="/code")
    return probe_questions(job, (HOST,), None, recipe).args(HOST)["python"]


@pytest.mark.parametrize(
    "path", ["/opt/tf/bin/python", "~/venv/bin/python3", "/usr/bin/python3.11", "/python"]
)
def test_interpreter_that_the_command_names_is_asked_for(path: str) -> None:
    assert asked_python(path, "train.py") == path


@pytest.mark.parametrize(
    "first", ["python", "python3", "./train.py", "/opt/pythonista", "{keep.env}/bin/python", "bash"]
)
def test_otherwise_the_interpreter_of_the_inventory_is_asked_for(first: str) -> None:
    assert asked_python(first, "train.py") == HOST.python


def test_environment_of_setup_takes_precedence() -> None:
    recipe = EnvironmentRecipe(main_file="requirements.txt", files={}, wheels=None, digest="c0ffee")
    assert asked_python("/opt/tf/bin/python", "train.py", recipe=recipe) == HOST.python
