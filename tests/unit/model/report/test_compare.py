"""Test which differences between runs are listed (in flags, variables, files, results and lines of
code), and which reason is given if a comparison is impossible.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from support.dashboard_scenes import PLAN, plan_of
from tfdeploy.model.answers.samples import TaskSample
from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.compare import (
    MOST_BYTES,
    MOST_COMPARED_FILES,
    ComparedRun,
    changed_files,
    comparison_charts,
    final_metrics,
    find_differences,
    lines_of_files,
    select_comparable,
)
from tfdeploy.planning.cluster import ranks

ONE = ComparedRun(plan=replace(PLAN, run="a"), started=1000.0)


def make_samples(*printed: dict[str, float]) -> list[TaskSample]:
    return [
        TaskSample(time=1000.0 + 10 * n, attempt=1, printed=printed_values)
        for n, printed_values in enumerate(printed)
    ]


def test_equal_runs_have_no_differences() -> None:
    assert find_differences([ONE, replace(ONE, plan=replace(PLAN, run="b"))]) == []


def test_flags_are_compared_by_name_in_any_notation() -> None:
    commands = (
        ["python", "t.py", "--lr=0.1", "--fast"],
        ["python", "t.py", "--fast", "--lr", "0.2", "--n", "3"],
    )
    differing = find_differences(
        [replace(ONE, plan=replace(PLAN, command=tuple(command))) for command in commands]
    )
    assert [(row["what"], row["key"], row["values"]) for row in differing] == [
        ("command", "--lr", ["0.1", "0.2"]),
        ("command", "--n", [None, "3"]),
    ]


def test_variables_of_job_are_compared_and_those_of_plan_are_not() -> None:
    def with_env(env: dict[str, str]) -> ComparedRun:
        return replace(
            ONE, plan=replace(PLAN, tasks=tuple(replace(task, env=env) for task in PLAN.tasks))
        )

    seat: Any = SimpleNamespace(host="n", task="worker:0", index=0)
    layout: Any = SimpleNamespace(
        seats=[seat],
        seats_on=lambda _: [seat],
        address_by_host={"n": "n"},
        port_by_task={"worker:0": 1},
    )
    of_ranks = ranks.rank_variables(layout, seat, "digits-1")
    first, second = (
        with_env({"A": "1", "TF_CONFIG": "x", **of_ranks}),
        with_env(
            {
                "A": "2",
                "TF_CONFIG": "y",
                "TFDEPLOY_TASK_HOST": "n",
                **dict.fromkeys(of_ranks, "other"),
            }
        ),
    )
    assert [(row["key"], row["values"]) for row in find_differences([first, second])] == [
        ("A", ["1", "2"])
    ]


def test_differing_files_are_named_or_else_releases() -> None:
    same = CodeFile("file", "c" * 64, 9)
    first = replace(ONE, files={"t.py": CodeFile("file", "a" * 64, 1), "same": same})
    second = replace(
        ONE,
        plan=replace(PLAN, release="other"),
        files={"t.py": CodeFile("exec", "b" * 64, 1), "same": same},
    )
    (differing,) = find_differences([first, second])
    assert (differing["what"], differing["key"], differing["values"]) == (
        "code",
        "t.py",
        ["file " + "a" * 12, "exec " + "b" * 12],
    )
    (differing,) = find_differences([first, replace(second, files=None)])
    assert (differing["key"], differing["values"]) == ("release", ["abc", "other"])


def with_python_versions(plan: Plan, *pythons: str) -> Plan:
    """Return the plan with these versions of Python on its first hosts.

    The other hosts report no versions, like hosts with an older tfdeploy.
    """
    versions = [{"Python": python} for python in pythons] + [dict[str, str]()] * len(plan.hosts)
    return replace(
        plan,
        hosts=tuple(
            replace(host, versions=host_versions)
            for host, host_versions in zip(plan.hosts, versions, strict=False)
        ),
    )


def test_differences_in_plans_and_versions() -> None:
    first = replace(ONE, plan=with_python_versions(PLAN, "3.10", "3.11"))
    second = replace(ONE, plan=with_python_versions(plan_of(1), "3.11"))
    values_by_key = {
        (row["what"], row["key"]): row["values"] for row in find_differences([first, second])
    }
    assert values_by_key["plan", "tasks"] == ["1 ps, 7 worker", "1 ps, 1 worker"]
    assert values_by_key["versions", "Python"] == ["1 x 3.10, 1 x 3.11", "3.11"]


def test_last_value_of_each_metric_of_deciding_task() -> None:
    deciding_rows = make_samples(
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.25, "epoch": 1, "accuracy": 0.5},
        {"step": 3},
    )
    run = replace(ONE, tasks={"worker:0": deciding_rows, "worker:1": make_samples({"loss": 9.0})})
    assert final_metrics([run]) == [
        {"run": "a", "metric": "step", "value": 3, "step": 3},
        {"run": "a", "metric": "loss", "value": 0.25, "step": 2},
        {"run": "a", "metric": "accuracy", "value": 0.5, "step": 2},
    ]
    assert [
        (chart.name, [line.name for line in chart.lines]) for chart in comparison_charts([run])
    ] == [
        ("step", ["a"]),
        ("loss", ["a"]),
        ("accuracy", ["a"]),
    ]


def test_task_with_most_metrics_is_used_if_no_deciding_task_prints() -> None:
    run = replace(
        ONE,
        tasks={
            "ps:0": make_samples({"x": 1}),
            "worker:1": make_samples({"x": 2}, {"x": 3}),
            "worker:2": [],
        },
    )
    assert (
        run.samples == run.tasks["worker:1"]
        and replace(ONE, tasks={"worker:0": make_samples({})}).samples == []
    )


RUNS = ("one", "two")


def code(**contents: bytes) -> tuple[dict[str, CodeFile], dict[str, bytes]]:
    return {
        name: CodeFile("file", sha256(text).hexdigest(), len(text))
        for name, text in contents.items()
    }, contents


def diff_by_path(
    first: dict[str, bytes], second: dict[str, bytes]
) -> dict[str, tuple[list[str] | None, str | None]]:
    (files1, contents1), (files2, contents2) = code(**first), code(**second)
    return {
        row["path"]: (row["diff"], row["why"])
        for row in lines_of_files(RUNS, (files1, files2), (contents1, contents2))
    }


def test_removed_and_added_lines() -> None:
    changed = diff_by_path(
        {"a": b"x\n-- y\nz\n", "gone": b"g\n", "same": b"s"},
        {"a": b"x\n++ y\nz\n", "new": b"n\n", "same": b"s"},
    )
    assert changed == {
        "a": (["@@ -1,3 +1,3 @@", " x", "--- y", "+++ y", " z"], None),
        "gone": (["@@ -1 +0,0 @@", "-g"], None),
        "new": (["@@ -0,0 +1 @@", "+n"], None),
    }


def test_reasons_for_missing_line_differences() -> None:
    changed = diff_by_path(
        {"a": b"\0", "b": b"\xff", "c": b"x\n"}, {"a": b"x", "b": b"y", "c": b"x\r\n"}
    )
    no_text = (None, "it is not text")
    assert changed == {
        "a": no_text,
        "b": no_text,
        "c": (None, "only its mode or its line ends differ"),
    }
    big, _ = code(a=b"x" * (MOST_BYTES + 1))
    small, content = code(a=b"y")
    (row,) = lines_of_files(RUNS, (big, small), ({}, content))
    assert row["why"] == "it is larger than 256 KiB" and select_comparable(big, ["a"]) == {}
    (row,) = lines_of_files(RUNS, (small, code(a=b"z")[0]), (content, None))
    assert row["why"] == "no host has the release of two any more"


def test_links_are_not_text_and_number_of_files_is_bounded() -> None:
    link = {"l": CodeFile("link", "x", 0)}
    assert changed_files(link, {"l": CodeFile("link", "y", 0)}) == changed_files(link, {}) == []
    many = {f"f{number:04}": CodeFile("file", "s", 1) for number in range(999)}
    assert len(changed_files(many, {})) == MOST_COMPARED_FILES
