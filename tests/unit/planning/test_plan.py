"""Test details of plans that the recorded plans in tests/golden do not cover separately.

The tests cover commands, environments and long arguments. They also check that make_plan is a pure
function.
"""

from __future__ import annotations

import ast
import json
import subprocess
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tfdeploy.planning
from tfdeploy.errors import ConfigError, Refused, UsageError
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, RoleRule
from tfdeploy.model.plan import Plan, plan_from_json, plan_to_json
from tfdeploy.planning import describe
from tfdeploy.planning.host_parts import host_parts
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.seats import hosts_to_probe
from tfdeploy.store.runs import RunStore

Facts = dict[str, HostFacts]


def task(plan: Plan, name: str) -> Any:
    return next(planned_task for planned_task in plan.tasks if planned_task.task == name)


def test_evaluator_is_not_in_cluster_of_tf_config(make: Callable[..., Plan]) -> None:
    plan = make({"ps": "n1", "worker": "n2", "evaluator": "n3"})
    roles = {
        planned_task.role: list(json.loads(planned_task.env["TF_CONFIG"])["cluster"])
        for planned_task in plan.tasks
    }
    assert roles == {
        "ps": ["ps", "worker"],
        "worker": ["ps", "worker"],
        "evaluator": ["ps", "worker"],
    }
    evaluator = task(plan, "evaluator:0")
    assert json.loads(evaluator.env["TF_CONFIG"])["task"] == {"type": "evaluator", "index": 0}
    assert (evaluator.port, evaluator.address, "TF_GRPC_REUSE_PORT" in evaluator.env) == (
        None,
        "",
        False,
    )


EVALUATES = "if task_type == 'evaluator':\n    evaluate()\n"


@pytest.mark.parametrize(
    ("roles", "mode", "text", "has_note"),
    [
        ({"chief": "n1", "worker": "n2"}, "mirrored", EVALUATES, True),
        ({"chief": "n1", "worker": "n2", "evaluator": "n1"}, "mirrored", EVALUATES, False),
        ({"chief": "n1", "worker": "n2"}, "mirrored", "evaluate()\n", False),
        ({"worker": "n1 n2"}, "plain", EVALUATES, False),
    ],
)
def test_missing_evaluator_is_noted(
    inventory: Callable[..., Inventory],
    facts_of: Callable[..., HostFacts],
    job: Job,
    roles: dict[str, str],
    mode: Any,
    text: str,
    has_note: bool,
) -> None:
    hosts = inventory(**roles)
    plan = make_plan(
        hosts,
        replace(job, mode=mode),
        {host.name: facts_of(host) for host in hosts.hosts},
        release="c0ffee",
        sources={"train.py": text},
        run="digits-1",
        now=1.0,
        operator="ml@desk",
        options=Options(any_mode=True),
    )
    assert any("code for an evaluator" in note for note in plan.notes) == has_note


def test_no_proxy_lists_addresses_where_host_or_job_has_proxy(make: Callable[..., Plan]) -> None:
    names = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
    expected = dict.fromkeys(names, "192.0.2.1,192.0.2.2,192.0.2.3")

    def set_for(plan: Plan, name: str) -> dict[str, str]:
        return {key: value for key, value in task(plan, name).env.items() if key in names}

    on_host = make(changed_facts={"n1": {"proxies": ("HTTPS_PROXY",)}})
    assert (set_for(on_host, "ps:0"), set_for(on_host, "worker:0")) == (expected, {})
    for name in ("ps:0", "worker:0"):
        assert set_for(make(env={"http_proxy": "http://a"}), name) == expected
        assert set_for(make(), name) == {}


def test_env_of_job_overrides(make: Callable[..., Plan]) -> None:
    env = task(make(env={"PYTHONUNBUFFERED": "0", "WHO": "{job_name}"}), "ps:0").env
    assert env["PYTHONUNBUFFERED"] == "0"
    assert env["WHO"] == "ps"


@pytest.mark.parametrize("placeholder", ["ps_hosts", "worker_hosts", "job_name", "task_index"])
def test_command_with_cluster_placeholder_gets_no_flags(
    make: Callable[..., Plan], placeholder: str
) -> None:
    plan = make(command=("python", "train.py", f"--x={{{placeholder}}}"))
    assert plan.flags_appended == ()
    assert len(task(plan, "ps:0").argv) == 3


def test_command_with_other_placeholders_gets_flags(make: Callable[..., Plan]) -> None:
    plan = make(command=("python", "train.py", "--n={num_workers}"))
    assert task(plan, "worker:1").argv[2:] == ("--n=2", "--job_name=worker")


@pytest.mark.parametrize("first", ["python", "python3"])
def test_python_is_interpreter_of_host(make: Callable[..., Plan], first: str) -> None:
    plan = make(
        command=(first, "train.py"), changed_facts={"n2": {"python": "/opt/venv/bin/python"}}
    )
    assert task(plan, "worker:0").argv[0] == "/opt/venv/bin/python"
    assert host_parts(plan, {})["n2"].tasks[0].path_prepend == ["/opt/venv/bin"]


def test_plan_says_that_the_command_names_the_interpreter(make: Callable[..., Plan]) -> None:
    plan = make(
        command=("~/venv/bin/python3.11", "train.py"),
        changed_facts={name: {"python": "/home/ml/venv/bin/python3.11"} for name in ("n1", "n2")},
    )
    described = dict(describe.describe_plan(plan).heading)["python"]
    assert "/home/ml/venv/bin/python3.11 on n[1-2] (the command names it)" in described


# In bytes: the longest argument that execve accepts, without the NUL at its end.
MOST = 128 * 1024 - 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"command": ("python", "train.py", "x" * (MOST + 1))},
            r"word 3 of the command of ps:0 .* has 131,072 bytes",
        ),
        ({"command": ("python", "train.py", "é" * (MOST // 2 + 1))}, "word 3 of the command"),
        (
            {"command": ("python", "train.py", "{ps_hosts}" + "x" * (MOST - 5))},
            "word 3 of the command",
        ),
        ({"env": {"X": "x" * MOST}}, r"the environment of ps:0 \(X=x{38}\.\.\.\)"),
    ],
)
def test_word_too_long_for_kernel_is_refused(
    make: Callable[..., Plan], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        make(**fields)


def test_kernel_accepts_longest_word() -> None:
    assert subprocess.run(["true", "x" * MOST], check=False).returncode == 0
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["true", "x" * (MOST + 1)], check=False)


def test_longest_word_is_planned(make: Callable[..., Plan]) -> None:
    plan = make(command=("python", "train.py", "x" * MOST), env={"X": "x" * (MOST - 20)})
    assert len(task(plan, "worker:0").argv[2]) == MOST


def test_texts_that_nothing_replaces_are_noted(make: Callable[..., Plan]) -> None:
    notes = make(
        command=("python", "train.py", "--rank={{rank}}", "--n={{n}}"),
        env={"OUT": "$HOME/out", "TMP": "~/tmp", "WORD": "a$b"},
    ).notes
    assert "the command has {{rank}}, so the program gets the plain text {rank}" in " ".join(notes)
    assert [note.split(":")[0] for note in notes if note.startswith("env ")] == [
        "env OUT",
        "env TMP",
    ]


def test_unknown_placeholder_in_env_is_refused(make: Callable[..., Plan]) -> None:
    with pytest.raises(UsageError, match=r"\{nope\}"):
        make(env={"X": "{nope}"})


def test_local_files_with_names_that_are_not_utf8_are_planned_and_stored(
    inventory: Callable[..., Inventory],
    facts_of: Callable[..., HostFacts],
    job: Job,
    tmp_path: Path,
) -> None:
    plain = inventory(ps="n1", worker="n2")
    odd = {
        "source": "/lab\udcff/i.yaml:1",
        "identity_file": "/lab\udcff/key",
        "known_hosts": "/lab\udcff/known",
    }
    hosts = replace(
        plain, hosts=tuple(replace(host, **odd) for host in plain.hosts), source="/lab\udcff/i.yaml"
    )
    facts = {host.name: facts_of(host) for host in hosts.hosts}
    plan = make_plan(
        hosts,
        job,
        facts,
        release="r",
        sources={},
        run="digits-1",
        now=1.0,
        operator="ml@desk",
        options=Options(),
    )
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    store = RunStore(tmp_path)
    assert store.save(plan) and store.plan("digits-1") == plan
    assert plan.hosts[0].ssh["identity_file"] == "/lab\udcff/key"


def test_program_missing_on_hosts_is_refused_with_line_of_command(
    make: Callable[..., Plan],
) -> None:
    changed_facts = {"n3": {"lacks_program": True}, "n2": {"lacks_program": True}}
    with pytest.raises(
        Refused, match=r"^there is no program pyhton on PATH of n\[2-3\]$"
    ) as refused:
        make(
            changed_facts=changed_facts,
            command=("pyhton", "train.py"),
            places={"command": "tfdeploy.yaml:3:command"},
        )
    assert (refused.value.where, refused.value.next) == (
        "tfdeploy.yaml:3:command",
        "did you mean python?",
    )
    with pytest.raises(Refused) as refused:
        make(changed_facts=changed_facts, command=("bash", "train.sh"))
    assert refused.value.next.startswith("install bash there")
    assert make(changed_facts=changed_facts, command=("/opt/pyhton", "train.py")).tasks


def test_start_folder_of_command_must_be_in_code(make: Callable[..., Plan]) -> None:
    files = frozenset({"src/models/train.py", "src/run.sh", "data.py"})
    for cwd, program in (
        ("src/models", "train.py"),
        ("src", "models/train.py"),
        ("src", "./run.sh"),
        ("", "data.py"),
    ):
        plan = make(options=Options(files=files), cwd=cwd, command=("python", program))
        assert plan.cwd == cwd and plan.tasks[0].argv[1] == program
    with pytest.raises(Refused, match=r"^the folder srcs is not in the code$") as refused:
        make(options=Options(files=files), cwd="srcs", places={"cwd": "tfdeploy.yaml:4:cwd"})
    assert (refused.value.where, refused.value.next) == ("tfdeploy.yaml:4:cwd", "did you mean src?")
    for command in (("python", "models/train.py"), ("./models/train.py",)):
        with pytest.raises(
            Refused, match=r"^the program src/models/models/train.py is not in the code$"
        ):
            make(options=Options(files=files), cwd="src/models", command=command)


@pytest.mark.parametrize(
    ("command", "message", "next"),
    [
        (("python", "train"), "the program train is not in the code", "did you mean train.py?"),
        (("python3", "-u", "trian.py"), "the program trian.py is not", "did you mean train.py?"),
        (("python", "-m", "trian"), "the module trian is neither in the code nor in", "train?"),
        (
            ("python", "-m", "gone.run"),
            "the module gone is neither in the code",
            "install the module on these hosts",
        ),
    ],
)
def test_missing_file_or_module_is_named(
    make: Callable[..., Plan], command: tuple[str, ...], message: str, next: str
) -> None:
    asked = {name: {"modules": {"trian": False, "gone": False}} for name in ("n1", "n2", "n3")}
    options = Options(files=frozenset({"train.py"}))
    with pytest.raises(Refused, match=message) as refused:
        make(
            changed_facts=asked,
            command=command,
            options=options,
            places={"command": "t.yaml:3:command"},
        )
    assert next in (refused.value.next or "") and refused.value.where == "t.yaml:3:command"


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "train"),
        ("python", "-m", "there.run"),
        ("python", "-W", "ignore", "app"),
        ("python", "-c", "print(1)"),
        ("python", "/opt/app"),
        ("env", "python", "train"),
    ],
)
def test_file_or_module_that_may_exist_is_accepted(
    make: Callable[..., Plan], command: tuple[str, ...]
) -> None:
    asked = {name: {"modules": {"train": False, "there": True}} for name in ("n1", "n2", "n3")}
    options = Options(files=frozenset({"train.py", "app/__main__.py"}))
    assert make(changed_facts=asked, command=command, options=options).tasks


def test_missing_command_is_refused(make: Callable[..., Plan]) -> None:
    with pytest.raises(UsageError, match="no command"):
        make(command=())


PLAN_FIELDS: Any = {
    "release": "r",
    "sources": {},
    "run": "digits-1",
    "now": 1.0,
    "operator": "ml@desk",
    "options": Options(),
}


def test_async_job_may_set_the_number_of_ps_to_0(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job
) -> None:
    """The workers of a program in which they hold the variables need no ps."""
    hosts = inventory(ps="n1", worker="n1 n2")
    facts = {host.name: facts_of(host) for host in hosts.hosts}
    without_ps = replace(job, roles={"ps": RoleRule(count=0)})
    with_option = {**PLAN_FIELDS, "options": Options(ps=0)}
    for plan in (
        make_plan(hosts, without_ps, facts, **PLAN_FIELDS),
        make_plan(hosts, job, facts, **with_option),
    ):
        assert [task.task for task in plan.tasks] == ["worker:0", "worker:1"]
    with pytest.raises(ConfigError, match="the requested numbers leave none"):
        make_plan(hosts, replace(without_ps, mode="sync"), facts, **PLAN_FIELDS)


def test_cluster_too_long_for_variable_is_refused_early(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job
) -> None:
    hosts = inventory(ps="n1", worker="n1")
    wide = replace(hosts, hosts=tuple(replace(host, ports=(1024, 65535)) for host in hosts.hosts))
    facts = {host.name: facts_of(host) for host in wide.hosts}
    many = replace(job, roles={"worker": RoleRule(count=10_000)})
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="Linux allows at most"):
            make_plan(wide, many, facts, **PLAN_FIELDS)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_unused_hosts_are_not_in_plan_and_their_problems_are_ignored(
    make: Callable[..., Plan],
) -> None:
    plan = make(options=Options(workers=1), changed_facts={"n3": {"python": None, "rsync": None}})
    assert [host.host for host in plan.hosts] == ["n1", "n2"]


def test_hosts_to_probe_are_those_with_roles_in_the_inventory() -> None:
    hosts = tuple(Host(name=name, address="10.0.0.1") for name in ("a", "b", "c"))
    assert hosts_to_probe(
        Inventory(hosts, {"worker": ("c", "left-out"), "ps": ("a",)}), "async"
    ) == ("a", "c")


def test_description_names_every_task_host_and_note(make: Callable[..., Plan]) -> None:
    plan = make()
    description = describe.describe_plan(plan)
    assert [row[:3] for row in description.rows] == [
        (planned_task.task, planned_task.host, planned_task.address) for planned_task in plan.tasks
    ]
    kept = dict(describe.describe_plan(replace(plan, keep=("checkpoints",))).heading)["on a death"]
    assert kept.endswith("; a restarted task continues from the files in checkpoints")
    assert dict(description.heading)["on a death"].endswith(
        "; a restarted task finds the files of its earlier attempts in the run's own folder; "
        "the next launch starts from zero, because the job has no `keep`"
    )
    assert dict(description.heading)["restart"].startswith("at most 3 times")
    assert dict(description.heading)["on a stall"].startswith("after 300 s without output")
    assert description.notes == plan.notes
    assert dict(description.commands)["worker:1"].startswith(
        "/usr/bin/python3 train.py --job_name=worker"
    )
    assert dict(description.heading)["training"] == "starts from zero"


def test_200_hosts_are_planned(make: Callable[..., Plan]) -> None:
    names = " ".join(f"h{number}" for number in range(200))
    plan = make({"ps": "n1", "worker": names})
    assert len(plan.tasks) == 201


def test_planning_imports_no_module_with_side_effects() -> None:
    banned = {
        "os",
        "time",
        "socket",
        "pathlib",
        "subprocess",
        "random",
        "uuid",
        "io",
        "shutil",
        "tempfile",
    }
    for file in Path(tfdeploy.planning.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & banned, file.name
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in banned, file.name
            assert not (isinstance(node, ast.Name) and node.id == "open"), file.name
