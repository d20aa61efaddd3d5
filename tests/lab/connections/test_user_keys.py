"""Test users and keys that a host refuses. tfdeploy reports one clear cause at once, and never asks
the user a question.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import set_inventory
from support.lab.login_shell import find_refusal_reason
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(shaky)


def make_key(path: Path, *args: str) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-f", str(path), *args], check=True, timeout=30
    )
    return path


@pytest.mark.fault("11 a wrong user")
def test_a_user_that_is_not_there(operator: Tfdeploy) -> None:
    set_inventory(operator, defaults={"user": "nobody-here"})
    reason_text = find_refusal_reason(operator)
    assert "nobody-here" in reason_text and "`user:`" in reason_text


@pytest.mark.fault("11 a key that is refused")
def test_a_key_that_the_host_does_not_take(operator: Tfdeploy) -> None:
    key = make_key(operator.home / "other", "-N", "")
    set_inventory(operator, defaults={"identity_file": str(key)})
    reason_text = find_refusal_reason(operator)
    assert (
        "refused the key offered for user lab" in reason_text
        and str(key) in reason_text
        and "ssh-copy-id" in reason_text
    )
    checked = operator.run("check", exit_code=4).stdout
    assert "n[1-4] ssh: refused the key offered for user lab" in checked
    address = operator.lab.status()[0]["address"]
    assert (
        "fix: if there is no user lab there, set `user:` (" in checked
        and f"); otherwise `ssh-copy-id -i {key}.pub lab@{address}`, or set `identity_file:` ("
        in checked
    )


@pytest.mark.fault("11 an encrypted key without an agent")
def test_an_encrypted_key_without_an_agent(operator: Tfdeploy) -> None:
    key = operator.home / "locked"
    shutil.copy(operator.lab.root / "id_ed25519", key)
    key.chmod(0o600)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(key)],
        check=True,
        timeout=30,
    )
    set_inventory(operator, defaults={"identity_file": str(key)})
    reason_text = find_refusal_reason(operator)
    assert "is encrypted" in reason_text and f"ssh-add {key}" in reason_text


@pytest.mark.fault("11 a key file missing, public, nonsense")
def test_a_key_file_that_is_missing_or_public_or_nonsense(operator: Tfdeploy) -> None:
    missing = operator.home / "missing"
    set_inventory(operator, defaults={"identity_file": str(missing)})
    assert f"{missing} cannot be read: No such file" in find_refusal_reason(operator)
    public = make_key(operator.home / "pair", "-N", "").with_suffix(".pub")
    set_inventory(operator, defaults={"identity_file": str(public)})
    assert "is a public key" in find_refusal_reason(operator)
    nonsense = operator.home / "nonsense"
    nonsense.write_text("what is this\n")
    set_inventory(operator, defaults={"identity_file": str(nonsense)})
    assert "is not a private key" in find_refusal_reason(operator)


@pytest.fixture
def full_agent(operator: Tfdeploy) -> Iterator[Path]:
    """Start an ssh-agent with ten keys that no host accepts, followed by the lab's key."""
    socket = Path(operator.home, "agent")
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL
    ) as agent:
        wait_for(socket.exists, 20, "the ssh-agent listens")
        keys = [make_key(operator.home / f"key-{number}", "-N", "") for number in range(10)]
        shutil.copy(operator.lab.root / "id_ed25519", operator.home / "right")
        (operator.home / "right").chmod(0o600)
        environment = {**operator.env, "SSH_AUTH_SOCK": str(socket)}
        for key in [*keys, operator.home / "right"]:
            subprocess.run(
                ["ssh-add", "-q", str(key)],
                env=environment,
                check=True,
                timeout=30,
                stderr=subprocess.DEVNULL,
            )
        yield socket
        agent.terminate()


@pytest.mark.fault("11 too many keys in the agent")
def test_too_many_keys_in_the_agent(operator: Tfdeploy, full_agent: Path) -> None:
    operator.env["SSH_AUTH_SOCK"] = str(full_agent)
    set_inventory(operator, defaults={"identity_file": None})
    reason_text = find_refusal_reason(operator)
    assert (
        "refused the" in reason_text
        and "keys offered" in reason_text
        and "`identity_file:`" in reason_text
    )
    key = operator.home / "locked"
    shutil.copy(operator.lab.root / "id_ed25519", key)
    key.chmod(0o600)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(key)],
        check=True,
        timeout=30,
    )
    set_inventory(operator, defaults={"identity_file": str(key)})
    # The key of `identity_file` is the eleventh key of the agent. ssh offers this key first,
    # wherever it stands in the agent.
    assert operator.json("exec", "--", "true")["ok"]
