"""Check the names on which older runs and users' scripts depend: these names must not change.

`frozen_names.json` lists the error codes that hosts send, the exit codes, and the names of a run's
files on hosts and on this machine. Other tests check the output of verbs (`test_printed.py`, with
the JSON Schemas in docs/json) and the answers of hosts (`test_protocol_table.py`, with
docs/agent-protocol.md).
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.error_codes import codes_of_verbs
from support.lab.commandline import Tfdeploy
from support.lab.jobs import open_gate, write_job
from tfdeploy import errors, lab
from tfdeploy.lab import Lab

FILE = Path(__file__).with_name("frozen_names.json")
RENEW = "PYTHONPATH=.:tests .venv/bin/python tests/golden/test_frozen_names.py --write"
HINT = f"a name that others read goes only with a reason in CHANGELOG.md; `{RENEW}` renews the list"
JOB, RUN = "golden", "golden-a"
GENERAL = (
    (re.compile(r"\b[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(rf"\b{RUN}\b"), "RUN"),
    (re.compile(rf"\b{JOB}\b"), "JOB"),
    (re.compile(r"\bn\d\b"), "HOST"),
    (re.compile(r"\b(?:ps|worker)([:-])\d\b"), r"TASK\1N"),
    (re.compile(r"@[\w.-]+\Z"), "@WHERE"),
    (re.compile(r"\b(completion/[a-z]+)%.*"), r"\1%FOLDER"),
    (re.compile(r"\b(locks|fences)/(?!folders|prepare).*"), r"\1/HOST"),
)
PASSING = re.compile(r"\.tmp\Z|\A\.cwd\.|\A\.staging|\Anew-|\.pyc\Z|\.aside-|\A\.agent\Z")


def exit_codes() -> dict[str, int]:
    return {
        name: kind.exit_code
        for name, kind in sorted(vars(errors).items())
        if inspect.isclass(kind) and issubclass(kind, errors.TfdeployError)
    }


def files_of_a_run(operator: Tfdeploy) -> list[str]:
    """Run a job to its end. Return the names of all files that this creates on hosts and on this
    machine.
    """
    # The run has no firewall: a firewall adds files, and not all machines have one.
    keys = {"keep": ["checkpoints"], "protect": "none"}
    write_job(operator, JOB, "quick.py", "--steps=30", "--gate=10", "--save", **keys)
    operator.run("launch", "--detach", "--name", RUN, exit_code=0)
    names = set(_files_on_hosts(operator))
    open_gate(operator, RUN, JOB)
    operator.wait_until("succeeded", RUN)
    operator.run("fetch", RUN, "--to", str(operator.home / "fetched"), exit_code=0)
    names.update(_files_on_hosts(operator))
    names.update(_files_below(operator.home / "fetched", "fetched"))
    for state in (operator.home / "state").iterdir():
        names.update(_files_below(state, "state"))
    # The files in state/trees are not compared, because they may be missing: tfdeploy writes them
    # only if all files of the code are older than two seconds.
    return sorted(name for name in names if not name.startswith("state/trees/"))


def _files_on_hosts(operator: Tfdeploy) -> Iterator[str]:
    for host in operator.lab.hosts:
        workdir = operator.lab.root / "hosts" / host / "home" / "tfdeploy"
        yield from _files_below(workdir / JOB, "host/JOB")


def _files_below(root: Path, shown_as: str) -> Iterator[str]:
    for path in root.rglob("*"):
        steps = path.relative_to(root).parts
        inside_code = "cwd" in steps[:-1] or ("releases" in steps and len(steps) > 2)
        if path.is_dir() or inside_code or any(map(PASSING.search, steps)):
            continue
        name = "/".join(steps)
        for pattern, replacement in GENERAL:
            name = pattern.sub(replacement, name)
        yield f"{shown_as}/{name}"


def frozen() -> dict[str, Any]:
    names: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return names


def test_error_codes_of_hosts_are_unchanged() -> None:
    assert codes_of_verbs() == frozen()["error codes"], HINT


def test_exit_codes_are_unchanged() -> None:
    assert exit_codes() == frozen()["exit codes"], HINT


def test_file_names_of_run_are_unchanged(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    assert files_of_a_run(tfdeploy(new_lab("loopback", 3))) == frozen()["files"], HINT


@pytest.mark.parametrize(
    "name", ["host/JOB/runs/RUN/plan.json", "host/JOB/runs/RUN/hosts/HOST/tasks/TASK-N/out.log"]
)
def test_list_has_files_that_every_run_has(name: str) -> None:
    assert name in frozen()["files"]


def main() -> None:
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"{__doc__}\n    {RENEW}")
    new_lab = lab.create_or_revive("frozen-names", "loopback", 3)
    try:
        with tempfile.TemporaryDirectory() as folder:
            files = files_of_a_run(Tfdeploy(new_lab, Path(folder) / "operator"))
    finally:
        new_lab.down()
    names = {"error codes": codes_of_verbs(), "exit codes": exit_codes(), "files": files}
    FILE.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
