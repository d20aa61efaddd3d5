"""Test that a launch either starts the complete run or leaves nothing on any host, even if a host
is slow or unreachable.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agent.nearby import NearFleet, held_until
from support.agent.unpacked import write_agent_files
from support.waiting import wait_for
from tfdeploy.agent import frames
from tfdeploy.agent.run import folder as run_folder
from tfdeploy.errors import AgentError, HostFailed, HostUnreachable, Refused, TfdeployError
from tfdeploy.model.job import Job, Secret
from tfdeploy.operations.launch import TRIES, LaunchRequest, launch
from tfdeploy.operations.launching import prepare_blobs, readiness, renewal
from tfdeploy.operations.run_lookup.run_names import refuse_taken_run_name
from tfdeploy.planning import host_parts as parts
from tfdeploy.store.runs import RunStore

FOREVER = "import time\nprint('here', flush=True)\nwhile True: time.sleep(1)\n"


@pytest.fixture(scope="module")
def agent_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("agent")
    write_agent_files(folder)
    return str(folder)


class Operator:
    """An operator who launches a program as a ps on n1 and as a worker on n2.

    `limits` sets how many seconds a host waits for the request that starts the tasks, and how many
    seconds it then waits for the commit.
    """

    def __init__(self, fleet: NearFleet, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet, self.root, self._monkeypatch = fleet, root, monkeypatch
        self.events: list[Any] = []
        (root / "code").mkdir()
        self.program(FOREVER)
        self.job = Job(
            name="whole",
            mode="async",
            command=("python", "train.py"),
            code=str(root / "code"),
            flags="none",
            ready_after_s=0.1,
        )
        self.job = replace(self.job, restart_max=0, stop_grace_s=1.0, finish_grace_s=0.5)

    def program(self, text: str) -> None:
        (self.root / "code" / "train.py").write_text(text)

    def limits(self, limit_s: float, **fields: Any) -> None:
        whole = parts._host_part
        fields = {"start_within_s": limit_s, "commit_within_s": limit_s, **fields}
        self._monkeypatch.setattr(
            parts, "_host_part", lambda *plan: replace_record(whole(*plan), fields)
        )

    def launch(self, run: str, **fields: Any) -> Any:
        asked = LaunchRequest(
            inventory=self.fleet.inventory,
            job=self.job,
            run=run,
            now=1.0,
            operator="me@here",
            holder={"user": "me", "pid": 1},
            **fields,
        )
        return launch(asked, self.fleet, RunStore(self.root / "store"), self.events.append)

    def left(self, run: str) -> dict[str, list[int]]:
        return self.fleet.alive(run, self.job.name)

    def has_given_up(self, run: str, host: str) -> bool:
        """Return True if the host has removed everything that it had prepared for the run."""
        return not os.path.exists(self.fleet.paths(host, self.job.name, run).run_dir)

    def phase(self, run: str, host: str) -> str:
        return self.fleet.paths(host, self.job.name, run).state().phase


def replace_record(part: Any, fields: dict[str, Any]) -> Any:
    for name, value in fields.items():
        setattr(part, name, value)
    return part


@pytest.fixture
def operator(tmp_path: Path, agent_dir: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    monkeypatch.setattr(run_folder, "AGENT_DIR", agent_dir)
    fleet = NearFleet(tmp_path, agent_dir, "n1", "n2")
    yield Operator(fleet, tmp_path, monkeypatch)
    fleet.around = lambda host, verb, do: do()
    fleet.end_all()


def test_launch_starts_every_task(operator: Operator) -> None:
    operator.launch("r1")
    assert {host: len(pids) for host, pids in operator.left("r1").items()} == {"n1": 1, "n2": 1}


def launch_error(operator: Operator, run: str) -> TfdeployError:
    with pytest.raises(TfdeployError) as caught:
        operator.launch(run)
    wait_for(lambda: not operator.left(run), 20, "nothing of it is alive")
    return caught.value


@pytest.mark.fault("61 one host starts late, another has given up; they do not hear each other")
@pytest.mark.parametrize("program", [FOREVER, "import time; time.sleep(0.5)"])
def test_host_that_gave_up_before_start_fails_launch(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Test a launch in which the request to start reaches the ps too late, while the hosts cannot
    reach each other.

    The launch must fail, because the worker alone would be half of a run.
    """
    operator.program(program)
    operator.limits(1.0)
    # Without certificates, the hosts of the run cannot connect to each other.
    monkeypatch.setattr(
        prepare_blobs, "make_certificates", lambda run, parts: {host: {} for host in parts}
    )
    monkeypatch.setattr(readiness, "SLACK_S", 5.0)

    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if verb == "run.links":
            return {"asked": [], "shut": []}
        if (host, verb) == ("n1", "run.start"):
            held_until(lambda: operator.has_given_up("r1", "n1"))
        return do()

    operator.fleet.around = around
    assert "this host received no renewal from the launch" in launch_error(operator, "r1").what


@pytest.mark.fault("61 one host is slower to prepare than the others wait")
def test_hosts_wait_for_host_that_prepares_late(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_s = 3.0
    operator.limits(60.0, start_within_s=limit_s)
    monkeypatch.setattr(renewal, "EVERY_S", 0.2)

    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if (host, verb) == ("n2", "run.prepare"):
            held_until(lambda: operator.phase("r1", "n1") == "prepared")
            start = time.monotonic()
            held_until(lambda: time.monotonic() > start + 1.5 * limit_s)
        return do()

    operator.fleet.around = around
    operator.launch("r1")
    assert {host: len(pids) for host, pids in operator.left("r1").items()} == {"n1": 1, "n2": 1}


@pytest.mark.fault("61 one host prepares after the others have given up")
def test_error_about_host_that_gave_up_names_no_firewall(operator: Operator) -> None:
    operator.limits(1.0)

    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if (host, verb) == ("n2", "run.prepare"):
            held_until(lambda: operator.phase("r1", "n1") == "ended")
            answer = do()
            # Before the launch goes on, n2 must have learned from n1 that the run was given up.
            held_until(lambda: operator.has_given_up("r1", "n2"))
            return answer
        return do()

    operator.fleet.around = around
    assert "this host received no renewal from the launch" in launch_error(operator, "r1").what
    assert operator.has_given_up("r1", "n1")


def test_error_names_no_firewall_if_host_gives_up_during_check(operator: Operator) -> None:
    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if (host, verb) == ("n2", "run.links"):
            where = {"run": "r1", "job": "whole", "reason": "an operator's whim"}
            operator.fleet.call("n1", "run.abort", **where)
            return {
                "asked": ["n1"],
                "shut": [{"host": "n1", "task": "", "address": "127.0.0.1:1", "why": "closed"}],
            }
        return do()

    operator.fleet.around = around
    assert "an operator's whim" in launch_error(operator, "r1").what


def test_name_of_rolled_back_launch_can_be_reused(operator: Operator) -> None:
    # On a busy machine, the program lives for longer than usual before it ends.
    usual, operator.job = operator.job, replace(operator.job, ready_after_s=60.0)
    operator.program("raise SystemExit(3)\n")
    assert "exit code 3" in launch_error(operator, "r1").what
    operator.job = usual
    refuse_taken_run_name(operator.fleet, operator.fleet.inventory.hosts, "whole", "r1")
    operator.program(FOREVER)
    operator.launch("r1")
    assert {host: len(pids) for host, pids in operator.left("r1").items()} == {"n1": 1, "n2": 1}
    assert Path(operator.fleet.paths("n1", "whole", "r1").cwd, "train.py").read_text() == FOREVER
    operator.fleet.end_all()


def test_name_of_ended_run_is_refused_and_run_stays_unchanged(operator: Operator) -> None:
    operator.launch("r1")
    for host in operator.fleet.contexts:
        operator.fleet.call(host, "run.stop", run="r1", job="whole", grace_s=0.0)
    with pytest.raises(Refused):
        refuse_taken_run_name(operator.fleet, operator.fleet.inventory.hosts, "whole", "r1")
    operator.program("raise SystemExit(3)\n")
    assert "r1 exists already" in launch_error(operator, "r1").what
    for host in operator.fleet.contexts:
        assert (
            Path(operator.fleet.paths(host, "whole", "r1").cwd, "train.py").read_text() == FOREVER
        )


def test_long_words_and_large_secrets_reach_hosts(operator: Operator) -> None:
    words = tuple(f"{number:02}" * 50_000 for number in range(11))
    operator.job = replace(operator.job, command=(*operator.job.command, *words))
    operator.launch("r1", secrets={f"KEY{number}": Secret("s" * 100_000) for number in range(8)})
    assert {host: len(pids) for host, pids in operator.left("r1").items()} == {"n1": 1, "n2": 1}
    (spec,) = operator.fleet.paths("n2", operator.job.name, "r1").part().tasks
    assert spec.argv[-11:] == list(words)


def test_plan_larger_than_host_limit_is_refused(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_PACKED_BYTES", 1 << 10)
    assert launch_error(operator, "r1").exit_code == 3 and not os.path.exists(
        operator.fleet.paths("n1", "whole", "r1").run_dir
    )


AWAY, BROKEN = (
    HostUnreachable("no route", where="n1"),
    HostFailed("no answer that makes sense", where="n1"),
)


@pytest.mark.fault("29 one host dies during prepare, and another refuses")
@pytest.mark.parametrize("code", ["live_run", "exists", "disk", "port_taken"])
@pytest.mark.parametrize(("other", "exit_code"), [(AWAY, 4), (BROKEN, 3)])
def test_refusal_hides_no_unreachable_host(
    operator: Operator, code: str, other: TfdeployError, exit_code: int
) -> None:
    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if verb == "run.prepare":
            raise other if host == "n1" else AgentError("there is one", code=code)
        return do()

    operator.fleet.around = around
    error = launch_error(operator, "r1")
    assert (
        error.exit_code == exit_code and other.what in error.what and "there is one" in error.what
    )
    # The launch is not tried again with other ports, because another host has failed for a reason
    # that other ports would not remove.
    assert operator.fleet.asked.count(("n2", "run.prepare")) == 1


def test_used_port_beside_live_run_is_not_retried(operator: Operator) -> None:
    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if verb == "run.prepare":
            raise AgentError("in the way", code="live_run" if host == "n2" else "port_taken")
        return do()

    operator.fleet.around = around
    error = launch_error(operator, "r1")
    assert (error.exit_code, error.what, error.where) == (3, "in the way", "n2")
    assert operator.fleet.asked.count(("n2", "run.prepare")) == 1


@pytest.mark.parametrize("times", [4, 99])
def test_launch_whose_ports_are_taken_again_and_again_is_retried(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Six launches that begin together all plan the lowest free ports, and one of them wins."""
    monkeypatch.setattr("tfdeploy.operations.launch.PORT_PAUSE_S", 0.01)
    taken = []

    def around(host: str, verb: str, do: Callable[[], Any]) -> Any:
        if (host, verb) == ("n1", "run.prepare") and len(taken) < times:
            taken.append(host)
            raise AgentError("port 2222 is taken", code="port_taken")
        return do()

    operator.fleet.around = around
    if times < TRIES:
        operator.launch("r1")
        assert {host: len(pids) for host, pids in operator.left("r1").items()} == {"n1": 1, "n2": 1}
    else:
        error = launch_error(operator, "r1")
        assert (error.exit_code, error.next) == (3, "type the same command again")
        assert len(taken) == TRIES
