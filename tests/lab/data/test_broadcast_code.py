"""Test that hosts pass large code on to each other, and also the checkpoints that tasks need when
they restart together.

The kernel's counters show how many bytes the control machine itself sends.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.host_commands import read_traffic_by_link
from support.lab.hosts import on_host
from support.lab.releases import (
    job_file,
    list_host_folder,
    list_leftovers,
    list_local_folder,
    wait_for_bytes,
)
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
MIB = 1 << 20
CODE_BYTES, KEEP_BYTES = 9 * MIB, 6 * MIB
# The most bytes that logins and requests send, in addition to the code and the data.
SLACK_BYTES = 1 * MIB


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    made = tfdeploy(few_hosts)
    job_file(made, "agents")
    # The agents are on the hosts after this sync, so that their transfer does not count.
    made.run("sync", exit_code=0)
    return made


def sent_from_here(operator: Tfdeploy) -> int:
    return read_traffic_by_link(operator.lab)["operator"]["from_bytes"]


def test_large_code_leaves_here_once_and_of_what_changes_in_part_the_rest_stays(
    operator: Tfdeploy,
) -> None:
    code = job_file(operator, "large")
    (code / "deep").mkdir()
    (code / "deep/weights").write_bytes(os.urandom(CODE_BYTES))
    (code / "deep/__init__.py").write_text("")
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    for most in (CODE_BYTES + SLACK_BYTES, SLACK_BYTES):
        before = sent_from_here(operator)
        rows = operator.json("sync")["hosts"]
        assert sent_from_here(operator) - before < most
        for row in rows:
            assert list_host_folder(
                operator, row["host"], f"large/releases/{row['release']}"
            ) == list_local_folder(code)
            assert list_leftovers(operator, row["host"], "large") == ""
        assert sorted(row["from"] for row in rows)[0] == "control" and len(
            {row["from"] for row in rows}
        ) == len(rows)
        with (code / "deep/weights").open("ab") as file:
            file.write(b"more")


def test_a_file_of_code_that_changes_while_it_is_sent_is_sent_as_it_is_then(
    operator: Tfdeploy,
) -> None:
    code = job_file(operator, "changing")
    (code / "weights").write_bytes(os.urandom(CODE_BYTES))
    syncing = operator.start("sync", "--json", "--bwlimit", "4M")
    wait_for_bytes(operator, "n1", "changing", MIB)
    (code / "weights").write_bytes(os.urandom(CODE_BYTES))
    exit_code, output = wait_for_end(syncing)
    assert exit_code == 0, output
    release = operator.json("sync")["hosts"][0]["release"]
    assert f'"release": "{release}"' in output
    for host in operator.lab.hosts:
        assert list_host_folder(
            operator, host, f"changing/releases/{release}"
        ) == list_local_folder(code)


def test_keep_goes_from_host_to_host_and_not_through_here(operator: Tfdeploy) -> None:
    job_file(
        operator,
        "kept",
        mode="mirrored",
        keep=["ck"],
        command=["python", "train.py"],
        ready={"after": "100ms"},
    )
    folder = "~/tfdeploy/kept/keep/ck"
    record = shlex.quote('model_checkpoint_path: "m-7"\n')
    files = (
        f"head -c {KEEP_BYTES} /dev/urandom > m-7.data; : > m-7.empty; printf %s {record} > "
        "checkpoint"
    )
    on_host(operator.lab, "n2", f"mkdir -p {folder}; cd {folder}; {files}")
    operator.run("sync", exit_code=0)
    before = sent_from_here(operator)
    stderr = operator.run("launch", "--wait", exit_code=0).stderr
    assert "`keep` of n2 was copied to n3: 3 files" in stderr
    assert sent_from_here(operator) - before < SLACK_BYTES
    sums = [
        on_host(operator.lab, host, f"cd {folder}; sha256sum *; stat -c '%n %s %y' *")
        for host in ("n2", "n3")
    ]
    assert sums[0] == sums[1]
    assert on_host(operator.lab, "n3", "ls -A ~/tfdeploy/kept/keep").split() == ["ck"]
