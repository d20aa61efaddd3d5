"""Test host keys that are unknown or have changed.

tfdeploy shows the fingerprints. It refuses such a key unless the operator agrees, and then records
the new key.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import set_inventory
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(shaky)


@pytest.fixture
def known_hosts(operator: Tfdeploy) -> Path:
    """Return the operator's own known_hosts, a copy of the lab's file."""
    path = operator.home / "known_hosts"
    shutil.copy(operator.lab.known_hosts, path)
    set_inventory(operator, defaults={"known_hosts": str(path)})
    return path


def fingerprint(lab: Lab, host: str) -> str:
    command = ["ssh-keygen", "-lf", str(lab.root / "hosts" / host / "host_key")]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=True
    ).stdout.split()[1]


def forget(known_hosts: Path, *numbers: int) -> None:
    """Remove the lines of these hosts (1 is n1) from the file."""
    lines = known_hosts.read_text().splitlines(keepends=True)
    known_hosts.write_text(
        "".join(line for number, line in enumerate(lines, 1) if number not in numbers)
    )


@pytest.mark.fault("9 an unknown host key")
def test_an_unknown_key_is_refused_with_its_fingerprint_and_trust_records_it(
    operator: Tfdeploy, known_hosts: Path
) -> None:
    forget(known_hosts, 2)
    rows = {row["host"]: row for row in operator.json("exec", "--", "true", exit_code=4)["hosts"]}
    assert [rows[host]["exit_code"] for host in ("n1", "n2", "n3", "n4")] == [0, None, 0, 0]
    print_2 = fingerprint(operator.lab, "n2")
    assert print_2 in rows["n2"]["error"]
    stderr = operator.run("exec", "--", "true", exit_code=4).stderr
    assert print_2 in stderr and "tfdeploy trust --limit n2" in stderr

    before = known_hosts.read_text()
    refused = operator.run("trust", exit_code=2)
    assert print_2 in refused.stderr and "no terminal" in refused.stderr
    assert known_hosts.read_text() == before

    answer = operator.json("trust", "--yes")
    assert {row["host"]: row["state"] for row in answer["hosts"]} == {
        "n1": "known",
        "n2": "recorded",
        "n3": "known",
        "n4": "known",
    }
    assert operator.json("exec", "--", "true")["ok"]
    # This sync has no job file, so it fails before it sends anything. Another test covers how rsync
    # checks host keys.
    operator.run("sync", "--json", exit_code=2)


def answered(operator: Tfdeploy, answer: bytes, *args: str) -> tuple[int, str]:
    """Run tfdeploy ARGS on a terminal and type `answer`. Return (exit code, all output)."""
    master, slave = pty.openpty()
    asking = subprocess.Popen(
        operator.argv(*args),
        env=operator.env,
        cwd=operator.cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, answer)
    shown = b""
    try:
        while block := os.read(master, 4096):
            shown += block
    except OSError:  # the other side has closed the terminal
        pass
    finally:
        os.close(master)
        code = asking.wait(120)
    return code, shown.decode(errors="replace")


def test_trust_asks_on_a_terminal(operator: Tfdeploy, known_hosts: Path) -> None:
    forget(known_hosts, 1, 4)
    before = known_hosts.read_text()
    code, shown = answered(operator, b"no\n", "trust")
    assert code == 4 and "2 left out" in shown and fingerprint(operator.lab, "n4") in shown
    assert known_hosts.read_text() == before
    code, shown = answered(operator, b"yes\n", "trust")
    assert code == 0 and f"2 recorded, 0 left out; recorded in {known_hosts}" in shown
    assert operator.json("exec", "--", "true")["ok"]


def test_trust_records_exactly_the_listed_fingerprints(
    operator: Tfdeploy, known_hosts: Path
) -> None:
    forget(known_hosts, 1, 2, 3)
    listed = operator.home / "prints"
    listed.write_text(
        f"# from the console\nn1 {fingerprint(operator.lab, 'n1')}\nn2 "
        f"{fingerprint(operator.lab, 'n3')}\n"
    )
    done = operator.run("trust", "--fingerprints", str(listed), exit_code=4)
    assert (
        "[n2] the key was not recorded" in done.stderr and "1 recorded, 2 left out" in done.stderr
    )
    rows = {
        row["host"]: row["exit_code"]
        for row in operator.json("exec", "--", "true", exit_code=4)["hosts"]
    }
    assert rows == {"n1": 0, "n2": None, "n3": None, "n4": 0}
    operator.run("trust", "--fingerprints", "/nowhere", exit_code=2)


@pytest.mark.fault("9 a changed host key, whatever flag")
def test_a_changed_key_is_refused_with_both_fingerprints_and_no_flag_silences_it(
    operator: Tfdeploy, known_hosts: Path
) -> None:
    lines = known_hosts.read_text().splitlines()
    another = lines[2].split()[1:]
    lines[1] = " ".join([lines[1].split()[0], *another])
    known_hosts.write_text("\n".join(lines) + "\n")
    before = known_hosts.read_text()
    old, new = fingerprint(operator.lab, "n3"), fingerprint(operator.lab, "n2")
    stderr = operator.run("exec", "--", "true", exit_code=4).stderr
    assert (
        old in stderr and new in stderr and "has changed" in stderr and f"{known_hosts}:2" in stderr
    )
    assert "tfdeploy trust --renew n2" in stderr
    trust = operator.run("trust", "--yes", exit_code=4)
    assert "changed" in trust.stderr and new in trust.stderr
    assert known_hosts.read_text() == before
    operator.run("exec", "--yes", "--limit", "n2", "--", "true", exit_code=4)


def exchange(known_hosts: Path) -> str:
    """Swap the recorded keys of n2 and n3 in known_hosts, and return the new text of the file."""
    lines = [line.split() for line in known_hosts.read_text().splitlines()]
    lines[1][1:], lines[2][1:] = lines[2][1:], lines[1][1:]
    text = "".join(" ".join(line) + "\n" for line in lines)
    known_hosts.write_text(text)
    return text


def test_a_renewal_shows_both_fingerprints_asks_and_replaces_that_host_s_key_alone(
    operator: Tfdeploy, known_hosts: Path
) -> None:
    right = known_hosts.read_text().splitlines()
    before = exchange(known_hosts)
    old, new = fingerprint(operator.lab, "n3"), fingerprint(operator.lab, "n2")
    refused = operator.run("trust", "--renew", "n2", exit_code=2)
    assert old in refused.stderr and new in refused.stderr and "no terminal" in refused.stderr
    code, shown = answered(operator, b"no\n", "trust", "--renew", "n2")
    assert code == 4 and old in shown and new in shown and known_hosts.read_text() == before

    code, shown = answered(operator, b"yes\n", "trust", "--renew", "n2")
    assert code == 0 and f"{known_hosts}:2" in shown and "the new key is recorded" in shown
    first, renewed, *others = known_hosts.read_text().splitlines()
    # The name is not compared, because ssh may hash it (HashKnownHosts).
    assert renewed.split()[1:3] == right[1].split()[1:3]
    assert [first, *others] == [
        line for number, line in enumerate(before.splitlines()) if number != 1
    ]
    rows = {
        row["host"]: row["exit_code"]
        for row in operator.json("exec", "--", "true", exit_code=4)["hosts"]
    }
    assert rows == {"n1": 0, "n2": 0, "n3": None, "n4": 0}

    answer = operator.json("trust", "--renew", "n3", "--yes")
    row = answer["hosts"][0]
    assert answer["ok"] and row["state"] == "renewed" and row["fingerprint"] == old
    assert [(each["fingerprint"], each["place"]) for each in row["on_record"]] == [
        (new, f"{known_hosts}:3")
    ]
    assert operator.json("exec", "--", "true")["ok"]


def test_what_is_not_to_be_renewed_is_told_from_what_is(
    operator: Tfdeploy, known_hosts: Path
) -> None:
    before = known_hosts.read_text()
    assert "nothing to replace" in operator.run("trust", "--renew", "n1").stderr
    operator.run("trust", "--renew", "n9", exit_code=2)
    forget(known_hosts, 1)
    assert (
        "tfdeploy trust --limit n1"
        in operator.run("trust", "--renew", "n1", "--yes", exit_code=4).stderr
    )
    known_hosts.write_text(
        before + f"@revoked * {before.split(maxsplit=3)[1]} {before.split(maxsplit=3)[2]}\n"
    )
    for args in (("trust", "--renew", "n1", "--yes"), ("trust", "--yes"), ("exec", "--", "true")):
        assert "revoked" in operator.run(*args, exit_code=4).stderr
    exchange(known_hosts)
    listed = operator.home / "prints"
    listed.write_text(f"n2 {fingerprint(operator.lab, 'n3')}\n")
    assert (
        "not recorded"
        in operator.run("trust", "--renew", "n2", "--fingerprints", str(listed), exit_code=4).stderr
    )
    listed.write_text(f"n2 {fingerprint(operator.lab, 'n2')}\n")
    operator.run("trust", "--renew", "n2", "--fingerprints", str(listed))
