"""Test which differences between runs are listed: in flags, variables, files and results."""

from __future__ import annotations

from dataclasses import replace

from support.dashboard_scenes import PLAN, plan_of
from tfdeploy.model.answers.samples import TaskSample
from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.compare import ComparedRun, curves, differences, finals

ONE = ComparedRun(plan=replace(PLAN, run="a"), started=1000.0)


def rows(*printed: dict[str, float]) -> list[TaskSample]:
    return [
        TaskSample(time=1000.0 + 10 * n, attempt=1, printed=each) for n, each in enumerate(printed)
    ]


def test_equal_runs_differ_in_nothing() -> None:
    assert differences([ONE, replace(ONE, plan=replace(PLAN, run="b"))]) == []


def test_flags_are_compared_by_name_however_they_are_written() -> None:
    commands = (
        ["python", "t.py", "--lr=0.1", "--fast"],
        ["python", "t.py", "--fast", "--lr", "0.2", "--n", "3"],
    )
    differing = differences(
        [replace(ONE, plan=replace(PLAN, command=tuple(each))) for each in commands]
    )
    assert [(row["what"], row["key"], row["values"]) for row in differing] == [
        ("command", "--lr", ["0.1", "0.2"]),
        ("command", "--n", [None, "3"]),
    ]


def test_variables_of_the_job_count_and_those_of_the_plan_do_not() -> None:
    def with_env(env: dict[str, str]) -> ComparedRun:
        return replace(
            ONE, plan=replace(PLAN, tasks=tuple(replace(task, env=env) for task in PLAN.tasks))
        )

    one, two = (
        with_env({"A": "1", "TF_CONFIG": "x"}),
        with_env({"A": "2", "TF_CONFIG": "y", "TFDEPLOY_TASK_HOST": "n"}),
    )
    assert [(row["key"], row["values"]) for row in differences([one, two])] == [("A", ["1", "2"])]


def test_files_that_differ_are_named_and_without_them_the_releases() -> None:
    same = CodeFile("file", "c" * 64, 9)
    one = replace(ONE, files={"t.py": CodeFile("file", "a" * 64, 1), "same": same})
    two = replace(
        ONE,
        plan=replace(PLAN, release="other"),
        files={"t.py": CodeFile("exec", "b" * 64, 1), "same": same},
    )
    (differing,) = differences([one, two])
    assert (differing["what"], differing["key"], differing["values"]) == (
        "code",
        "t.py",
        ["file " + "a" * 12, "exec " + "b" * 12],
    )
    (differing,) = differences([one, replace(two, files=None)])
    assert (differing["key"], differing["values"]) == ("release", ["abc", "other"])


def had(plan: Plan, *pythons: str) -> Plan:
    """Return the plan with these versions of Python on its first hosts.

    The other hosts report no versions, like hosts with an older tfdeploy.
    """
    told = [{"Python": python} for python in pythons] + [dict[str, str]()] * len(plan.hosts)
    return replace(
        plan,
        hosts=tuple(
            replace(host, versions=said) for host, said in zip(plan.hosts, told, strict=False)
        ),
    )


def test_plans_and_versions() -> None:
    one = replace(ONE, plan=had(PLAN, "3.10", "3.11"))
    two = replace(ONE, plan=had(plan_of(1), "3.11"))
    said = {(row["what"], row["key"]): row["values"] for row in differences([one, two])}
    assert said["plan", "tasks"] == ["1 ps, 7 worker", "1 ps, 1 worker"]
    assert said["versions", "Python"] == ["1 x 3.10, 1 x 3.11", "3.11"]


def test_the_last_value_of_each_metric_with_its_step_by_the_deciding_task() -> None:
    told = rows(
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.25, "epoch": 1, "accuracy": 0.5},
        {"step": 3},
    )
    run = replace(ONE, tasks={"worker:0": told, "worker:1": rows({"loss": 9.0})})
    assert finals([run]) == [
        {"run": "a", "metric": "step", "value": 3, "step": 3},
        {"run": "a", "metric": "loss", "value": 0.25, "step": 2},
        {"run": "a", "metric": "accuracy", "value": 0.5, "step": 2},
    ]
    assert [(chart.name, [line.name for line in chart.lines]) for chart in curves([run])] == [
        ("step", ["a"]),
        ("loss", ["a"]),
        ("accuracy", ["a"]),
    ]


def test_where_no_deciding_task_prints_the_one_that_says_most_speaks() -> None:
    run = replace(
        ONE, tasks={"ps:0": rows({"x": 1}), "worker:1": rows({"x": 2}, {"x": 3}), "worker:2": []}
    )
    assert (
        run.samples == run.tasks["worker:1"]
        and replace(ONE, tasks={"worker:0": rows({})}).samples == []
    )
