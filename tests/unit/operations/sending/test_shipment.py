"""Test what a launch finds out from the code of the job before it contacts the hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfdeploy.model.job import Job, RoleRule
from tfdeploy.operations.sending.shipment import read_shipment
from tfdeploy.planning.source.imports import find_imports_outside_code, modules_to_probe


def test_imports_of_programs_of_all_roles_are_checked_and_none_is_certain(
    tmp_path: Path,
) -> None:
    (tmp_path / "worker.py").write_text("import pandas\n")
    (tmp_path / "ps.py").write_text("import zmq\n")
    job = Job(name="two", mode="async", command=("python", "worker.py"), code=str(tmp_path))
    alone = read_shipment(job, None).program(job)
    assert [
        (module_import.module, module_import.always_reached)
        for module_import in find_imports_outside_code(job, alone, ("worker.py", "ps.py"))
    ] == [("pandas", True)]
    job = replace(job, roles={"ps": RoleRule(command=("python", "ps.py"))})
    all_programs = read_shipment(job, None).program(job)
    assert {"pandas", "zmq"} <= set(modules_to_probe(job, all_programs))
    imports = find_imports_outside_code(job, all_programs, ("worker.py", "ps.py"))
    assert {module_import.module: module_import.always_reached for module_import in imports} == {
        "pandas": False,
        "zmq": False,
    }
