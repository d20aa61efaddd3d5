"""Test what a launch finds out from the code of the job before it contacts the hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfdeploy.model.job import Job, RoleRule
from tfdeploy.operations.sending.shipment import read_shipment
from tfdeploy.planning.source.imports import from_outside, modules_asked


def test_hosts_are_asked_for_what_the_program_of_any_role_imports_and_none_of_it_is_sure(
    tmp_path: Path,
) -> None:
    (tmp_path / "worker.py").write_text("import pandas\n")
    (tmp_path / "ps.py").write_text("import zmq\n")
    job = Job(name="two", mode="async", command=("python", "worker.py"), code=str(tmp_path))
    alone = read_shipment(job, None).program(job)
    assert [
        (each.module, each.sure) for each in from_outside(job, alone, ("worker.py", "ps.py"))
    ] == [("pandas", True)]
    job = replace(job, roles={"ps": RoleRule(command=("python", "ps.py"))})
    both = read_shipment(job, None).program(job)
    assert {"pandas", "zmq"} <= set(modules_asked(job, both))
    imports = from_outside(job, both, ("worker.py", "ps.py"))
    assert {each.module: each.sure for each in imports} == {"pandas": False, "zmq": False}
