"""Test the channel to a real agent: how the control machine opens the channel, how the agent
answers calls, and how the channel ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import AgentError, HostFailed, HostUnreachable, Refused
from tfdeploy.model.answers.files import RELEASE_STATE
from tfdeploy.model.answers.hosts import PING
from tfdeploy.model.answers.runs import RUN_STATUS
from tfdeploy.text.typed import EmptyAnswer, Verb
from tfdeploy.transport.agent import bootstrap, channel
from tfdeploy.transport.agent.archive import agent_name
from tfdeploy.transport.fleet import SshFleet


@pytest.fixture
def fleet() -> Iterator[SshFleet]:
    with SshFleet() as opened:
        yield opened


def test_agent_is_uploaded_once_and_answers(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1", "MaxSessions 1")
    agent = fleet.session(sshd.host).agent()
    assert agent.hello.workdir == str(sshd.home / "tfdeploy")
    folder = sshd.home / "tfdeploy/.agent" / agent_name()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert abs(agent.clock_skew_s) < 5
    assert agent.call(PING).clock == pytest.approx(time.time(), abs=5)
    assert fleet.session(sshd.host).agent() is agent
    before = folder.stat().st_mtime_ns
    with SshFleet() as second_fleet:
        second_fleet.session(sshd.host).agent().call(PING)
    assert folder.stat().st_mtime_ns == before or (folder / "__main__.py").exists()


@pytest.mark.parametrize("trap", ["fcntl", "hashlib", "json", "shutil"])
def test_agent_does_not_import_users_module_with_library_name(
    ssh_hosts: Any, tmp_path: Path, trap: str
) -> None:
    (tmp_path / f"{trap}.py").write_text("raise SystemExit('trapped')")
    sshd = ssh_hosts.host("n1", f'ForceCommand cd {tmp_path}; eval "$SSH_ORIGINAL_COMMAND"')
    for _ in ("put there", "found there"):
        with SshFleet() as fleet:
            assert fleet.session(sshd.host).agent().call(PING).clock


def test_refusal_by_agent_raises_agent_error_with_code(ssh_hosts: Any, fleet: SshFleet) -> None:
    agent = fleet.session(ssh_hosts.host("n1").host).agent()
    with pytest.raises(AgentError) as caught:
        agent.call(RUN_STATUS, {"job": "../x", "run": "r"})
    assert caught.value.code
    assert (caught.value.where or "").startswith("n1")
    with pytest.raises(AgentError):
        agent.call(Verb("no.such.verb", EmptyAnswer))


def test_each_thread_gets_answer_to_its_call(ssh_hosts: Any, fleet: SshFleet) -> None:
    agent = fleet.session(ssh_hosts.host("n1").host).agent()
    clocks: list[float] = []
    threads = [
        threading.Thread(
            daemon=True, target=lambda: clocks.extend(agent.call(PING).clock for _ in range(20))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clocks) == 160


def test_sending_keeps_to_rate_limit_of_host(ssh_hosts: Any) -> None:
    took, host = [], ssh_hosts.host("n1").host
    for rate in (None, 1 << 20):
        with SshFleet(bwlimit=rate) as fleet:
            agent = fleet.session(host).agent()
            began = time.monotonic()
            agent.call(PING, blob=bytes(2 << 20))
            took.append(time.monotonic() - began)
    assert took[1] > 1.5, "two seconds' worth, less what goes out at once"
    assert took[0] < took[1]


@pytest.mark.parametrize(
    "noise", ["echo hello; printf 'no newline'", "printf '\\033[31m%s\\n' red; echo oops >&2"]
)
def test_output_of_login_shell_is_ignored(ssh_hosts: Any, fleet: SshFleet, noise: str) -> None:
    sshd = ssh_hosts.host(
        "n1",
        f"ForceCommand {noise}; eval $SSH_ORIGINAL_COMMAND".replace("eval $", 'eval "$').replace(
            "COMMAND", 'COMMAND"'
        ),
    )
    assert fleet.session(sshd.host).agent().call(PING)


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("/bin/false", HostFailed, "ended with exit code 1"),
        ("echo This account is closed.; exit 0", HostFailed, "This account is closed."),
        ("yes", HostFailed, "prints too much"),
        ("exec sleep 1000", HostFailed, "did not start within 2 s"),
        ('PATH=/nowhere; export PATH; eval "$SSH_ORIGINAL_COMMAND"', Refused, "no Python"),
    ],
)
def test_error_names_shell_that_does_not_run_agent(
    ssh_hosts: Any,
    fleet: SshFleet,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    kind: type,
    words: str,
) -> None:
    sshd = ssh_hosts.host("n1", f"ForceCommand {command}")
    if "sleep" in command:
        monkeypatch.setattr(bootstrap, "START_S", 2.0)
    with pytest.raises(kind, match=words) as caught:
        fleet.session(sshd.host).agent()
    assert caught.value.where == "n1"
    assert kind is Refused or "`ssh HOST true`" in (caught.value.next or "")
    assert "\x1b" not in caught.value.what


def test_full_process_table_is_not_blamed_on_the_interpreter(
    ssh_hosts: Any, fleet: SshFleet
) -> None:
    full = "echo; echo =tfdeploy-python= python3; echo /bin/sh: 1: Cannot fork >&2; exit 2"
    sshd = ssh_hosts.host("n1", f"ForceCommand {full}")
    with pytest.raises(Refused, match="Cannot fork") as caught:
        fleet.session(sshd.host).agent()
    assert "end processes" in (caught.value.next or "")


def python_stub(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_first_python_that_is_new_enough_is_used(ssh_hosts: Any, fleet: SshFleet) -> None:
    stubs = ssh_hosts.root / "stubs"
    python_stub(stubs, "python", "#!/bin/sh\nexit 99\n")
    sshd = ssh_hosts.host("n1", f'ForceCommand PATH={stubs}:/bin; eval "$SSH_ORIGINAL_COMMAND"')
    python_stub(stubs, "python3", "#!/bin/sh\nexit 99\n")
    with pytest.raises(Refused, match=r"older than 3\.8"):
        fleet.session(sshd.host).agent()
    python_stub(stubs, "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert fleet.session(sshd.host).agent().call(PING)


@pytest.mark.fault("14 a wrapper that fails, prints, or is no Python")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo no licence for this host >&2; exit 7", ("exit code 7", "no licence for this host")),
        ("echo loading module; exit 0", ("ended with exit code 0", "loading module")),
        ("exec /bin/cat /nowhere", ("exit code 1", "/nowhere")),
    ],
)
def test_error_names_failing_wrapper_not_login_shell(
    ssh_hosts: Any, fleet: SshFleet, text: str, words: tuple[str, ...]
) -> None:
    sshd = ssh_hosts.host("n1")
    python_stub(sshd.home, "wrapper", f"#!/bin/sh\n{text}\n")
    with pytest.raises(Refused) as caught:
        fleet.session(replace(sshd.host, python="~/wrapper")).agent()
    assert (
        f"{sshd.home}/wrapper ended" in caught.value.what and "login shell" not in caught.value.what
    )
    assert all(word in caught.value.what for word in words), caught.value.what
    assert caught.value.next and "`python: PATH`" in caught.value.next


def test_wrapper_may_print(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1")
    python_stub(
        sshd.home, "wrapper", f'#!/bin/sh\nprintf "loading module"; exec {sys.executable} "$@"'
    )
    assert fleet.session(replace(sshd.host, python="~/wrapper")).agent().call(PING)


def test_error_names_workdir_that_cannot_be_created(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1")
    (sshd.home / "file").write_text("")
    with pytest.raises(Refused, match=r"home/file.*Not a directory"):
        fleet.session(replace(sshd.host, workdir="~/file/tfdeploy")).agent()


@pytest.mark.fault("60 a workdir that others may write to")
def test_workdir_writable_by_others_is_refused_with_chmod_command(
    ssh_hosts: Any, fleet: SshFleet
) -> None:
    sshd = ssh_hosts.host("n1")
    workdir = sshd.home / "tfdeploy"
    workdir.mkdir()
    workdir.chmod(0o775)
    with pytest.raises(Refused, match="may be written to by others") as caught:
        fleet.session(sshd.host).agent()
    chmod_command = "`tfdeploy exec --limit n1 -- chmod go-w {}`"
    assert caught.value.where == "n1" and caught.value.next == chmod_command.format(workdir)
    assert list(workdir.iterdir()) == []
    workdir.chmod(0o755)
    agent = fleet.session(sshd.host).agent()
    for folder in ("job", "job/releases"):
        (workdir / folder).mkdir(0o700)
    (workdir / "job/releases").chmod(0o777)
    with pytest.raises(AgentError, match="job/releases may be written to by others") as refused:
        agent.call(RELEASE_STATE, {"job": "job", "release": "r1"})
    assert refused.value.exit_code == 3 and refused.value.next == chmod_command.format(
        f"{workdir}/job/releases"
    )


def test_death_of_agent_fails_waiting_calls_and_new_agent_starts(
    ssh_hosts: Any, fleet: SshFleet
) -> None:
    session = fleet.session(ssh_hosts.host("n1").host)
    agent = session.agent()
    os.kill(agent.hello.pid, signal.SIGKILL)
    with pytest.raises(HostUnreachable):
        for _ in range(200):
            agent.call(PING, timeout_s=5)
            time.sleep(0.01)
    assert session.agent().call(PING)


@pytest.mark.parametrize("hurried", [False, True])
def test_heartbeat_detects_frozen_agent(
    ssh_hosts: Any, fleet: SshFleet, monkeypatch: pytest.MonkeyPatch, hurried: bool
) -> None:
    monkeypatch.setattr(
        *((channel, "HURRIED_PING_S") if hurried else (channel.frames, "HEARTBEAT_S")), 0.2
    )
    agent = fleet.session(ssh_hosts.host("n1").host).agent()
    if hurried:
        agent.shorten_timeouts()
    agent.call(PING)
    monkeypatch.setattr(channel, "HURRIED_DEAD_AFTER_S" if hurried else "DEAD_AFTER_S", 0.6)
    os.kill(agent.hello.pid, signal.SIGSTOP)
    try:
        with pytest.raises(HostUnreachable, match=r"no sign of life for 0\.6 s"):
            agent.call(PING, timeout_s=20)
    finally:
        os.kill(agent.hello.pid, signal.SIGKILL)


def test_agent_that_freezes_during_large_transfer_is_detected(
    ssh_hosts: Any, fleet: SshFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = fleet.session(ssh_hosts.host("n1").host).agent()
    monkeypatch.setattr(channel, "DEAD_AFTER_S", 0.6)
    os.kill(agent.hello.pid, signal.SIGSTOP)
    try:
        with pytest.raises(HostUnreachable, match=r"no sign of life for 0\.6 s"):
            agent.call(PING, blob=bytes(16 << 20), timeout_s=20)
    finally:
        os.kill(agent.hello.pid, signal.SIGKILL)


def test_malformed_answer_ends_waiting_call(
    ssh_hosts: Any, fleet: SshFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = fleet.session(ssh_hosts.host("n1").host).agent()
    # Python raises RecursionError when it parses this JSON.
    monkeypatch.setattr(agent, "_dispatch", lambda frame: json.loads("[" * 100_000))
    with pytest.raises(HostUnreachable, match="that tfdeploy's agent never sends"):
        agent.call(PING, timeout_s=20)


def test_closing_fleet_ends_waiting_calls(ssh_hosts: Any) -> None:
    fleet = SshFleet()
    agent = fleet.session(ssh_hosts.host("n1").host).agent()
    os.kill(agent.hello.pid, signal.SIGSTOP)
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            agent.call(PING, timeout_s=600)
        except HostUnreachable as error:
            failed.append(error)

    thread = threading.Thread(daemon=True, target=wait)
    thread.start()
    fleet.close()
    # The timeout of the call itself is longer than this, so only close() can have ended the call.
    thread.join(120)
    os.kill(agent.hello.pid, signal.SIGKILL)
    assert failed
