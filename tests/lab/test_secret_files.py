"""Test that files with secrets in the code folder, such as a private key, are not copied to a host,
and that no secret appears on a screen, in a log or in a plan.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from support.files.code_tree import git
from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.leaks import encoded_forms, find_leaks, find_shown
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
CANARY = f"c4nary{os.urandom(8).hex()}/token"
COLOURFUL = """import os, sys, time
token = os.environ["TOKEN"]
print("plain", token, flush=True)
print("\\x1b[31m" + "\\x1b[0m\\x1b[32m".join(token) + "\\x1b[0m all shown", flush=True)
for at in range(0, len(token), 3):
    sys.stderr.write("\\x1b[1m" + token[at:at + 3]); sys.stderr.flush(); time.sleep(0.002)
sys.stderr.write("\\n")
"""
FOREIGN_KEY = (
    "-----BEGIN PRIVATE "
    "KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE "
    "KEY-----\n"
)


@pytest.fixture
def operator(pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    """Return an operator whose secret file, inventory and private key are in the folder of the
    program. The secret file and the key also have a second name there (a hard link).
    """
    made = tfdeploy(pair)
    secrets = {"TOKEN": {"file": "./token.txt"}}
    write_job(
        made,
        "secretfiles",
        "quick.py",
        flags="none",
        secrets=secrets,
        inventory="inventory.yaml",
        mode="local",
    )
    (made.cwd / "quick.py").write_text(COLOURFUL)
    (made.cwd / "token.txt").write_text(CANARY + "\n")
    lines = pair.inventory.read_text().splitlines()
    key = next(
        line.partition(":")[2].strip()
        for line in lines
        if line.strip().startswith("identity_file:")
    )
    (made.cwd / "keys").mkdir()
    shutil.copy(key, made.cwd / "keys/id")
    text = "\n".join(lines).replace(key, str(made.cwd / "keys/id"))
    (made.cwd / "inventory.yaml").write_text(text + "\n")
    del made.env["TFDEPLOY_INVENTORY"]
    os.link(made.cwd / "token.txt", made.cwd / "notes.txt")
    os.link(made.cwd / "keys/id", made.cwd / "backup")
    return made


def wanted(operator: Tfdeploy) -> list[bytes]:
    body = (operator.cwd / "keys/id").read_text().splitlines()[2]
    return [form.encode() for form in {*encoded_forms(CANARY), body}]


def refused(operator: Tfdeploy, exit_code: int, *args: str) -> str:
    done = operator.run(*args, exit_code=exit_code)
    assert find_shown(done.stdout + done.stderr, wanted(operator)) == []
    return done.stderr


def test_a_canary_and_a_key_in_the_code_folder_are_sent_nowhere(operator: Tfdeploy) -> None:
    cwd, canary, run = operator.cwd, wanted(operator), "secretfiles-1"
    outputs = [operator.run("sync", exit_code=0)]
    names = (
        "backup (a private key of the inventory), keys/id (a private key of the inventory), "
        "notes.txt (the secret TOKEN)"
    )
    assert outputs[0].stderr.count(f"not sent: {names}, token.txt (the secret TOKEN)") == 1
    outputs.append(operator.run("launch", "--dry-run", "--json", exit_code=0))
    outputs.append(operator.run("launch", "--wait", "-v", "--name", run, exit_code=0))
    assert outputs[2].stderr.count("not sent: ") == 1
    for args in (
        ("logs",),
        ("logs", "--json"),
        ("logs", "--output", "raw"),
        ("status", "--json"),
        ("audit", "--json"),
    ):
        outputs.append(operator.run(*args, run, exit_code=0))
    assert outputs[3].stdout.count("***") == 3 and "all shown" in outputs[3].stdout

    (cwd / ".env").write_text(f"TOKEN={CANARY}\n")
    assert ".env holds the value of the secret TOKEN" in refused(operator, 3, "launch", "--wait")
    (cwd / ".env").unlink()
    (cwd / "fixture.py").write_text(f'KEY = """\n{FOREIGN_KEY}"""\n')
    for args in (("sync",), ("launch", "--wait")):
        assert f"{cwd}/fixture.py:2" in refused(operator, 3, *args)
    assert "fixture.py holds a private key" in operator.run("check", exit_code=1).stdout
    (cwd / ".tfdeployignore").write_text("fixture.py\n")

    git(cwd, "init", "-q")
    git(cwd, "add", "notes.txt", "keys/id")
    assert "is a private key of the inventory, and git tracks it" in refused(operator, 2, "sync")
    git(cwd, "rm", "-q", "--cached", "keys/id")
    assert "notes.txt is the secret TOKEN, and git tracks it" in refused(
        operator, 2, "launch", "--wait"
    )
    git(cwd, "rm", "-q", "--cached", "notes.txt")
    (cwd / "images").mkdir()
    os.link(cwd / "token.txt", cwd / "images/labels")
    job = cwd / "tfdeploy.yaml"
    plain = job.read_text()
    for via in ("auto", "rsync"):
        job.write_text(plain + f"data: {{images: {{path: images, via: {via}}}}}\n")
        assert "labels is the secret TOKEN, but lies in a data set" in refused(operator, 2, "sync")
    job.write_text(plain + f'metrics: {{step: "{CANARY} (.*)"}}\n')
    assert "metrics.step holds the value of the secret TOKEN" in refused(
        operator, 2, "launch", "--wait"
    )
    job.write_text(plain)
    shutil.rmtree(cwd / "images")

    assert [find_shown(done.stdout + done.stderr, canary) for done in outputs] == [[]] * len(
        outputs
    )
    assert find_leaks(operator, canary) == {}
    state = [path for path in (operator.home / "state").rglob("*") if path.is_file()]
    assert state and [path for path in state if find_shown(path.read_bytes(), canary)] == []
    what_older_versions_sent_is_named_and_removed(operator, run)


def what_older_versions_sent_is_named_and_removed(operator: Tfdeploy, run: str) -> None:
    plant = (
        f"for at in releases/*/ runs/{run}/cwd/; do test ! -d $at || echo '{CANARY}' > "
        "$at/notes.txt; done"
    )
    for host in operator.lab.hosts:
        on_host(operator.lab, host, f"cd ~/tfdeploy/secretfiles && {plant}")
    left = operator.json("audit", exit_code=1)["left"]
    assert {(row["kind"], row["path"].rpartition("/")[2]) for row in left} == {
        ("secret file", "notes.txt")
    }
    assert {(row["host"], row["path"].split("/")[-3]) for row in left} >= {
        ("n1", "releases"),
        ("n2", "releases"),
    }
    assert {row["path"].split("/")[-3] for row in left} == {"releases", run}
    operator.run("clean", "--newest", "5", "-y", exit_code=0)
    assert operator.json("audit")["left"] == [] and find_leaks(operator, wanted(operator)) == {}
    assert run in {row["run"] for row in operator.json("runs", "--all")["runs"]}


def test_what_is_wanted_in_the_code_is_sent_when_it_is_said(operator: Tfdeploy) -> None:
    (operator.cwd / "tests").mkdir()
    (operator.cwd / "tests/key.pem").write_text(FOREIGN_KEY)
    (operator.cwd / "example.env").write_text(f"TOKEN={CANARY}\n")
    operator.run(
        "launch", "--wait", "--allow-secrets-in-code", "--name", "secretfiles-2", exit_code=0
    )
    leaked = find_leaks(
        operator,
        [CANARY.encode(), FOREIGN_KEY.splitlines()[1].encode()],
        "~/tfdeploy/secretfiles/releases",
    )
    assert {path.rpartition("/")[2] for paths in leaked.values() for path in paths} == {
        "key.pem",
        "example.env",
    }
