"""Find what differs between runs, including the lines of their code. Also find the last value of
each metric of each run. The functions are pure."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import chain, islice
from typing import Literal, TypedDict

from tfdeploy.agent.metric_names import sort_metrics
from tfdeploy.model.answers.samples import SHOWN_APART, STANDARD_METRICS, TaskSample
from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.run_report import Chart, ChartLine, CurvePieces, pieces_of
from tfdeploy.text.names import group_by_key

MOST_COMPARED_FILES = 50  # the most files that are compared for a pair of runs
MOST_BYTES = 256 << 10  # a larger file is not compared
MOST_LINES = 2000  # the most lines of the diff of one file
CONTEXT = 3  # unchanged lines that a diff shows around a difference

CodeFiles = Mapping[str, CodeFile]
Contents = Mapping[str, bytes]


class LinesOfFile(TypedDict):
    """The lines of one file that differ. `runs`: the first of all compared runs, and the run whose
    file differs from the first run's. `diff`: the output of `diff -u` without the two lines that
    name the files."""

    path: str
    runs: tuple[str, str]
    diff: list[str] | None  # None if there is no diff, for the reason in `why`
    why: str | None


def changed_files(one: CodeFiles, other: CodeFiles) -> list[str]:
    """Return at most MOST_COMPARED_FILES files whose content differs or that one of the two runs
    lacks. Links are left out."""
    versions = {path: (one.get(path), other.get(path)) for path in sorted({*one, *other})}
    changed = [
        path
        for path, files in versions.items()
        if files[0] != files[1] and all(file is None or file.kind != "link" for file in files)
    ]
    return changed[:MOST_COMPARED_FILES]


def select_comparable(files: CodeFiles, paths: Iterable[str]) -> dict[str, CodeFile]:
    """Return those of `paths` that exist and are small enough to compare."""
    return {path: files[path] for path in paths if path in files and files[path].size <= MOST_BYTES}


def lines_of_files(
    runs: tuple[str, str],
    files: tuple[CodeFiles, CodeFiles],
    contents: tuple[Contents | None, Contents | None],
) -> Iterator[LinesOfFile]:
    """Yield the differing lines of each changed file. `contents`: one entry for each run: the
    contents of the files that `select_comparable` returned. The entry is None if no host has the
    run's code any more."""
    for path in changed_files(*files):
        texts, why = [], None
        for run, known, content in zip(runs, files, contents, strict=True):
            if path not in known:
                texts.append("")
            elif known[path].size > MOST_BYTES:
                why = f"it is larger than {MOST_BYTES >> 10} KiB"
            elif content is None or path not in content:
                why = f"no host has the release of {run} any more"
            elif (text := _decode_text(content[path])) is None:
                why = "it is not text"
            else:
                texts.append(text)
        diff: list[str] = []
        if not why:
            before, after = map(str.splitlines, texts)
            lines = unified_diff(before, after, n=CONTEXT, lineterm="")
            # The first two lines of the diff only name the files, so they are left out.
            diff = list(islice(lines, 2, MOST_LINES))
            why = None if diff else "only its mode or its line ends differ"
        yield {"path": path, "runs": runs, "diff": diff or None, "why": why}


def _decode_text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


What = Literal["command", "env", "code", "plan", "versions"]
MOST_FILES = 1000  # the most changed files that are listed
# Variables that tfdeploy sets. They are not compared, because they depend on hosts, ports and run.
_OF_THE_PLAN = """
    TF_CONFIG CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER PYTHONUNBUFFERED TF_GRPC_REUSE_PORT
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
    GROUP_RANK NODE_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE TORCHELASTIC_RUN_ID
    no_grpc_proxy no_proxy NO_PROXY
"""


class Difference(TypedDict):
    """One difference. `values`: one value for each run, in the order of the runs; null if the run
    has no value or its value is not known."""

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
    """One run. `files`: the files of its code, or None if this machine does not know them.
    `contents`: {path: content}, for files that differ from those of the first run, or None if no
    host has the run's code any more."""

    plan: Plan
    started: float
    tasks: Mapping[str, Sequence[TaskSample]] = field(default_factory=dict)
    files: Mapping[str, CodeFile] | None = None
    contents: Mapping[str, bytes] | None = None

    @property
    def samples(self) -> list[TaskSample]:
        """Return the samples of one task, whose metrics represent the run.

        The task is a deciding task (a task whose success ends the run) that printed metrics. If no
        deciding task printed metrics, the samples of the task that printed most are returned.
        """
        printed = {task: [row for row in rows if row.printed] for task, rows in self.tasks.items()}
        deciding = (printed[task] for task in self.plan.deciding if printed.get(task))
        return next(deciding, max(printed.values(), key=len, default=[]))


def find_differences(runs: Sequence[ComparedRun]) -> list[Difference]:
    differing: list[Difference] = []
    plans = [run.plan for run in runs]
    subjects: dict[What, list[dict[str, str]]] = {
        "command": list(map(_flags_by_name, plans)),
        "env": list(map(_job_env, plans)),
        "code": _code_by_run(runs),
        "plan": list(map(_plan_facts, plans)),
        "versions": [_count_values_by_name(plan.versions.values()) for plan in plans],
    }
    for subject, values_by_run in subjects.items():
        for key in dict.fromkeys(chain.from_iterable(values_by_run)):
            values = [each.get(key) for each in values_by_run]
            if len(set(values)) > 1:
                differing.append({"what": subject, "key": key, "values": values})
    return differing


def differing_code_lines(runs: Sequence[ComparedRun]) -> list[LinesOfFile]:
    """Return the differing lines between the code of the first run and of each other run."""
    changed_files: list[LinesOfFile] = []
    first = runs[0]
    for run in runs[1:]:
        if first.files is not None and run.files is not None:
            changed_files += lines_of_files(
                (first.plan.run, run.plan.run),
                (first.files, run.files),
                (first.contents, run.contents),
            )
    return changed_files


def final_metrics(runs: Sequence[ComparedRun]) -> list[Final]:
    """Return, for each run, the last value of each metric, and the run's step at the time of this
    value."""
    final_values: list[Final] = []
    for run in runs:
        last: dict[str, tuple[float, int | None]] = {}
        step: int | None = None
        for row in run.samples:
            step = int(row.printed["step"]) if "step" in row.printed else step
            last.update({name: (value, step) for name, value in row.printed.items()})
        for metric in _compared_metrics(last, run):
            value, last_step = last[metric]
            final_values.append(
                {"run": run.plan.run, "metric": metric, "value": value, "step": last_step}
            )
    return final_values


def _compared_metrics(names: Iterable[str], run: ComparedRun) -> list[str]:
    """Return the metrics that are compared, the most important first."""
    return sort_metrics(
        (name for name in names if name in SHOWN_APART or name not in STANDARD_METRICS),
        (*SHOWN_APART, *run.plan.metrics),
    )


def comparison_charts(runs: Sequence[ComparedRun]) -> list[Chart]:
    """Return a chart for each metric, with a line for each run. Time counts from the start of each
    run."""
    names = dict.fromkeys(name for run in runs for row in run.samples for name in row.printed)
    charts = []
    for name in _compared_metrics(names, runs[0]):
        lines = (ChartLine(run.plan.run, _metric_pieces(run, name)) for run in runs)
        charts.append(Chart(name, "", tuple(line for line in lines if line.pieces)))
    return charts


def _metric_pieces(run: ComparedRun, name: str) -> CurvePieces:
    return pieces_of(
        (row.attempt, row.time - run.started, row.printed.get(name)) for row in run.samples
    )


def _flags_by_name(plan: Plan) -> dict[str, str]:
    """Return the flags of the run's command by name. `--lr=0.1` and `--lr 0.1` are the same. All
    positional arguments are under the key "command"."""
    flags: list[tuple[str, str]] = []
    positional: list[str] = []
    following = deque(plan.command)
    while following:
        argument = following.popleft()
        if not argument.startswith("--") or argument == "--":
            positional.append(argument)
            continue
        name, equals, value = argument.partition("=")
        if not equals and following and not following[0].startswith("-"):
            value = following.popleft()
        flags.append((name, value))
    values = {name: " ".join(given) for name, given in group_by_key(flags).items()}
    return {"command": shlex.join(positional), **values}


def _job_env(plan: Plan) -> dict[str, str]:
    """Return the job's environment variables. If the tasks have different values, the text says how
    many tasks have which value."""
    values = _count_values_by_name(task.env for task in plan.tasks)
    job_names = values.keys() - {*_OF_THE_PLAN.split()}
    return {
        name: value
        for name, value in values.items()
        if name in job_names and not name.startswith("TFDEPLOY_")
    }


def _code_by_run(runs: Sequence[ComparedRun]) -> list[dict[str, str]]:
    known = [run.files for run in runs if run.files is not None]
    if len(known) < len(runs):
        return [{"release": run.plan.release} for run in runs]
    contents = [
        {path: f"{each.kind} {each.sum[:12]}" for path, each in files.items()} for files in known
    ]
    paths = sorted({*chain.from_iterable(contents)})
    changed = (path for path in paths if len({each.get(path) for each in contents}) > 1)
    kept = [*islice(changed, MOST_FILES)]
    return [{path: each[path] for path in kept if path in each} for each in contents]


def _plan_facts(plan: Plan) -> dict[str, str]:
    roles = Counter(task.role for task in plan.tasks)
    gpus = Counter(f"{task.role}: {len(task.gpus)}" for task in plan.tasks if task.gpus)
    return {
        "job": plan.job,
        "mode": plan.mode,
        "tasks": ", ".join(f"{count} {role}" for role, count in roles.items()),
        "hosts": ", ".join(dict.fromkeys(task.host for task in plan.tasks)),
        "GPUs of a task": _format_counts(gpus) if gpus else "",
        "keep": ", ".join(plan.keep),
        "data": ", ".join(plan.data),
        "began from": plan.resume or "zero",
        "restart": plan.restart,
        "protect": plan.protect.used,
    }


def _count_values_by_name(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    values = group_by_key(chain.from_iterable(each.items() for each in several))
    return {name: _format_counts(Counter(given)) for name, given in values.items()}


def _format_counts(counts: Counter[str]) -> str:
    """Return the value if all tasks have the same value, else text such as `3 x this, 1 x that`."""
    if len(counts) == 1:
        return next(iter(counts))
    most_first = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count} x {value}" for value, count in most_first)
