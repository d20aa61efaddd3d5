"""Find what differs between runs, and the final metrics of each run. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from tfdeploy.agent.metric_names import sort_metrics
from tfdeploy.model.answers.samples import TaskSample
from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.measures import NOT_OWN, SHOWN_APART
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.code_lines import LinesOfFile, lines_of_files
from tfdeploy.model.report.run_report import Curves, Line, pieces_of

What = Literal["command", "env", "code", "plan", "versions"]
MOST_FILES = 1000  # the most changed files that are listed
# Variables that tfdeploy sets. They are not compared, because they depend on hosts and ports.
_OF_THE_PLAN = frozenset(
    (
        *(
            "TF_CONFIG",
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "PYTHONUNBUFFERED",
            "TF_GRPC_REUSE_PORT",
        ),
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("no_grpc_proxy", "no_proxy", "NO_PROXY"),
    )
)


class Difference(TypedDict):
    """One difference. `values`: one for each run, in their order; None: that run has none, or it is
    not known."""

    what: What
    key: str
    values: list[str | None]


class Final(TypedDict):
    run: str
    metric: str
    value: float
    step: int | None


@dataclass(frozen=True)
class ComparedRun:
    """One run. `files`: the files of its code; None: this machine does not know them. `contents`:
    path -> content, for files that differ from those of the first run; None: no host has the run's
    code any more."""

    plan: Plan
    started: float
    tasks: Mapping[str, Sequence[TaskSample]] = field(default_factory=dict)
    files: Mapping[str, CodeFile] | None = None
    contents: Mapping[str, bytes] | None = None

    @property
    def samples(self) -> list[TaskSample]:
        """Return the samples of one task, whose metrics represent the run.

        This is a deciding task that printed metrics, or else the task that printed most.
        """
        printed = {task: [row for row in rows if row.printed] for task, rows in self.tasks.items()}
        deciding = (printed[task] for task in self.plan.deciding if printed.get(task))
        return next(deciding, max(printed.values(), key=len, default=[]))


def differences(runs: Sequence[ComparedRun]) -> list[Difference]:
    differing: list[Difference] = []
    plans = [run.plan for run in runs]
    subjects: dict[What, list[dict[str, str]]] = {
        "command": list(map(_command, plans)),
        "env": list(map(_env, plans)),
        "code": _code(runs),
        "plan": list(map(_plan, plans)),
        "versions": [_counted_by_name(plan.versions.values()) for plan in plans],
    }
    for what, told in subjects.items():
        for key in dict.fromkeys(key for each in told for key in each):
            values = [each.get(key) for each in told]
            if len(set(values)) > 1:
                differing.append({"what": what, "key": key, "values": values})
    return differing


def code_lines(runs: Sequence[ComparedRun]) -> list[LinesOfFile]:
    """Return the differing lines between the code of the first run and of each other run."""
    first = runs[0]
    changed_files: list[LinesOfFile] = []
    for run in runs[1:]:
        if first.files is not None and run.files is not None:
            names = (first.plan.run, run.plan.run)
            changed_files += lines_of_files(
                names, (first.files, run.files), (first.contents, run.contents)
            )
    return changed_files


def finals(runs: Sequence[ComparedRun]) -> list[Final]:
    """Return the last value of each metric in each run's samples, and the step that the run had
    reached then."""
    final_values: list[Final] = []
    for run in runs:
        last: dict[str, tuple[float, int | None]] = {}
        step: int | None = None
        for row in run.samples:
            step = int(row.printed["step"]) if "step" in row.printed else step
            last.update({name: (value, step) for name, value in row.printed.items()})
        for metric in _compared_metrics(last, run):
            value, at = last[metric]
            final_values.append({"run": run.plan.run, "metric": metric, "value": value, "step": at})
    return final_values


def _compared_metrics(names: Iterable[str], run: ComparedRun) -> list[str]:
    """Return the metrics that are compared, the most important first."""
    return sort_metrics(
        (name for name in names if name in SHOWN_APART or name not in NOT_OWN),
        (*SHOWN_APART, *run.plan.metrics),
    )


def curves(runs: Sequence[ComparedRun]) -> list[Curves]:
    """Return a chart for each metric, with a line for each run. Time counts from the start of each
    run."""
    names = dict.fromkeys(name for run in runs for row in run.samples for name in row.printed)
    shown = _compared_metrics(names, runs[0])
    return [
        Curves(name, "", tuple(line for run in runs if (line := _line(run, name)) is not None))
        for name in shown
    ]


def _line(run: ComparedRun, name: str) -> Line | None:
    pieces = pieces_of(
        (row.attempt, row.time - run.started, row.printed.get(name)) for row in run.samples
    )
    return Line(run.plan.run, pieces) if pieces else None


def _command(plan: Plan) -> dict[str, str]:
    """Return flags by name, `--lr=0.1` as `--lr 0.1`; all positional arguments under the key
    "command"."""
    words_by_position: dict[str, str] = {}
    words: list[str] = []
    rest = list(plan.command)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        words_by_position[name] = (
            f"{words_by_position[name]} {value}" if name in words_by_position else value
        )
    return {"command": shlex.join(words), **words_by_position}


def _env(plan: Plan) -> dict[str, str]:
    """Return the job's environment variables. If the tasks have different values, the text says how
    many tasks have which value."""
    values = _counted_by_name(task.env for task in plan.tasks)
    return {
        name: value
        for name, value in values.items()
        if name not in _OF_THE_PLAN and not name.startswith("TFDEPLOY_")
    }


def _code(runs: Sequence[ComparedRun]) -> list[dict[str, str]]:
    known = [run.files for run in runs if run.files is not None]
    if len(known) < len(runs):
        return [{"release": run.plan.release} for run in runs]
    contents = [
        {path: f"{each.kind} {each.sum[:12]}" for path, each in files.items()} for files in known
    ]
    changed = sorted(
        path
        for path in {path for each in contents for path in each}
        if len({each.get(path) for each in contents}) > 1
    )
    kept = set(changed[:MOST_FILES])
    return [{path: said for path, said in each.items() if path in kept} for each in contents]


def _plan(plan: Plan) -> dict[str, str]:
    roles = Counter(task.role for task in plan.tasks)
    gpus = Counter(f"{task.role}: {len(task.gpus)}" for task in plan.tasks if task.gpus)
    return {
        "job": plan.job,
        "mode": plan.mode,
        "tasks": ", ".join(f"{count} {role}" for role, count in roles.items()),
        "hosts": ", ".join(dict.fromkeys(task.host for task in plan.tasks)),
        "GPUs of a task": _counted(gpus) if gpus else "",
        "keep": ", ".join(plan.keep),
        "data": ", ".join(plan.data),
        "began from": plan.resume or "zero",
        "restart": plan.restart,
        "protect": plan.protect.used,
    }


def _counted_by_name(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    values: dict[str, Counter[str]] = {}
    for each in several:
        for name, value in each.items():
            values.setdefault(name, Counter())[value] += 1
    return {name: _counted(counts) for name, counts in values.items()}


def _counted(counts: Counter[str]) -> str:
    """Return the value if all tasks have the same value, else text such as `3 x this, 1 x that`."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(
        f"{count} x {value}" for value, count in Counter(dict(sorted(counts.items()))).most_common()
    )
