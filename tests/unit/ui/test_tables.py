"""Test tables and reports at every width of the terminal.

Their lines are never wider than the terminal, even if it has only 20 columns. Text from hosts is
never interpreted as markup.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.model.status.run_status import RunView
from tfdeploy.model.status.task_status import TaskView, task_json
from tfdeploy.text.names import fold_names, group_equal
from tfdeploy.text.row_values import iso_z
from tfdeploy.ui import reports
from tfdeploy.ui.amounts import format_bytes, format_duration, format_number, format_roughly
from tfdeploy.ui.tables import cell_width, table_lines
from tfdeploy.ui.terminal import Terminal

TASKS = (
    TaskView(
        task="ps:0",
        host="n1",
        state="running",
        address="192.0.2.10:2222",
        gpus=(),
        pid=41,
        attempt=1,
    ),
    TaskView(
        task="worker:0",
        host="n2",
        state="running",
        address="192.0.2.11:2222",
        gpus=(0, 1),
        pid=42,
        attempt=1,
        step=1200,
        loss=0.3142,
    ),
    TaskView(
        task="worker:1",
        host="n3\x1b[2J",
        state="ended",
        address="192.0.2.12:2222",
        gpus=(),
        outcome="failed",
        exit_code=3,
        attempt=1,
        reason="[/foo] é日本",
        log_lost_bytes=4_700_000,
    ),
)
VIEW = RunView(
    run="digits-1",
    job="digits",
    mode="async",
    state="failed",
    started=1000.0,
    ended=1065.0,
    tasks=TASKS,
    cause="worker:1 on n3 failed with exit code 3",
    first_death="worker:1",
)
EXEC = [
    {
        "host": f"n{i:02}",
        "exit_code": 0,
        "stdout": "ok\n",
        "stderr": "",
        "seconds": 0.1,
        "error": None,
    }
    for i in range(1, 17)
] + [
    {
        "host": "big",
        "exit_code": 1,
        "stdout": "",
        "stderr": "no\x07\n",
        "seconds": 0.1,
        "error": None,
    }
]
AWAY = [
    {
        "host": f"n{i}",
        "exit_code": None,
        "stdout": "",
        "stderr": "",
        "error": f"192.0.2.{i}:22: No route to host",
    }
    for i in (1, 2)
]
SURVIVOR = {"pid": 7, "state": "D", "command": "python train.py"}
STOPPED = [
    {"host": "n1", "ok": True, "survivors": [], "error": None, "had_ended": False},
    {"host": "n2", "ok": True, "survivors": [], "error": None, "had_ended": False},
    {"host": "n3", "ok": False, "survivors": [SURVIVOR], "error": None, "had_ended": False},
]
SYNCED = [
    {
        "host": "n1",
        "ok": True,
        "release": "abc",
        "bytes_sent": 0,
        "from": None,
        "seconds": 0.1,
        "error": None,
    },
    {
        "host": "n2",
        "ok": True,
        "release": "abc",
        "bytes_sent": 1_234_567,
        "from": None,
        "seconds": 65.0,
        "error": None,
    },
    {
        "host": "n3",
        "ok": False,
        "release": None,
        "bytes_sent": 0,
        "from": None,
        "seconds": 0.1,
        "error": "disk full",
    },
]


def text_of(width: int | None, show: Any, *args: Any) -> str:
    out = io.StringIO()
    terminal = Terminal(out, width, False)
    show(terminal, *args) if show is not reports.show_exec else show(terminal, terminal, *args)
    return out.getvalue()


def test_status_table() -> None:
    assert text_of(None, reports.show_status, VIEW, 2000.0).splitlines() == [
        "digits-1  async  failed after 1:05",
        "task      host  state      pid  gpus  step  loss    address          reason",
        "ps:0      n1    running    41                       192.0.2.10:2222",
        "worker:0  n2    running    42   0,1   1200  0.3142  192.0.2.11:2222",
        "worker:1  n3    failed: 3                           192.0.2.12:2222  [/foo] é日本",
        "cause: worker:1 on n3 failed with exit code 3",
        "missing from the log of worker:1: 4.7 MB, because n3's disk was full",
        "next: `tfdeploy logs digits-1 --task worker:1 -n 100`",
    ]


def test_reason_is_shown_once_with_last_lines_of_first_death() -> None:
    cause = "worker:1 on n3 failed with exit code 3: [/foo] é日本"
    ended = replace(TASKS[0], state="ended", outcome="stopped", reason=cause)
    after = [
        replace(ended, task=f"worker:{n}", outcome="failed", reason="after worker:1 died")
        for n in (2, 3)
    ]
    view = replace(VIEW, cause=cause, tasks=(ended, TASKS[2], *after))
    last = ["Traceback:", "\x1b[2JValueError"]
    for width in (None, 80):
        text = text_of(width, reports.show_status, view, 2000.0, str, last, "as of the last fetch")
        assert (text.count("[/foo]"), text.count("after worker:1 died")) == (1, 1)
        assert (
            f"worker:[2-3]: after worker:1 died\ncause: {cause}\nits last lines, as of the last "
            "fetch:\n" in text
        )
        assert "\n  | Traceback:\n  | " in text and "ValueError" in text
        assert "\x1b" not in text
        assert text.endswith("next: `tfdeploy logs digits-1 --task worker:1 -n 100`\n")


def test_stopped_task_has_error_of_previous_attempt() -> None:
    cause = "worker:1 on n3 gave up: KeyError: 'w3' (train.py:7)"
    restart_reason = "started again: KeyError: 'w3' (train.py:7)"
    stopped = replace(
        TASKS[1], state="ended", outcome="stopped", reason=cause, began_again=restart_reason
    )
    view = replace(
        VIEW,
        cause=cause,
        tasks=(TASKS[0], stopped, replace(TASKS[2], reason=None, began_again=restart_reason)),
    )
    rows = text_of(None, reports.show_status, view, 2000.0).splitlines()
    assert (
        rows[3].startswith("worker:0")
        and rows[3].endswith(restart_reason)
        and not rows[4].endswith(restart_reason)
    )


def test_run_without_first_death_suggests_command() -> None:
    aborted = replace(VIEW, first_death=None, cause="a port is taken", tasks=TASKS[:2])
    assert text_of(None, reports.show_status, aborted, 2000.0).endswith(
        "next: `tfdeploy logs digits-1 -n 100`\n"
    )
    away = replace(aborted, state="lost", unreachable=("n1", "n2", "n3"))
    assert text_of(None, reports.show_status, away, 2000.0).endswith(
        "next: `tfdeploy exec --limit 'n[1-3]' -- true`\n"
    )


@pytest.mark.parametrize("state", ["running", "starting", "succeeded", "stopped"])
def test_healthy_run_has_few_lines(state: str) -> None:
    view = replace(VIEW, state=state, cause=None, first_death=None, tasks=TASKS[:2])
    assert len(text_of(80, reports.show_status, view, 2000.0).splitlines()) == 4


def test_row_has_metrics_of_job() -> None:
    view = replace(
        VIEW,
        tasks=tuple(
            replace(task, metrics={"accuracy": 0.91, "lr": 1e-3}) for task in VIEW.tasks[1:2]
        ),
    )
    row = text_of(None, reports.show_status, view, 2000.0).splitlines()[2]
    assert "  accuracy 0.91, lr 0.001  " in row


LAYERS = {f"logs/layer{number}/weights/summaries/mean_1": 0.1 for number in range(20)}
RATES = {
    "logs/Variable_4/sec": 0.0,
    "checkpoint/global_step/sec": 0.0,
    "logs/global_step/sec": 45.25,
    "images/sec": 3.0,
}


def test_row_has_positive_rates_and_metrics_of_job_from_event_files() -> None:
    task = replace(
        VIEW.tasks[1],
        metrics={**LAYERS, **RATES, "accuracy": 0.91, "my/f1": 0.5, "train/loss": 0.3142},
    )
    view = replace(VIEW, tasks=(task,), job_metrics=("step", "my/f1"))
    row = text_of(None, reports.show_status, view, 2000.0).splitlines()[2]
    assert "  my/f1 0.5, accuracy 0.91, images/sec 3, global_step/sec 45.25  " in row
    assert len(row) < 140
    many = replace(
        view, tasks=(replace(task, metrics=LAYERS | {f"metric{n}": 0.5 for n in range(30)}),)
    )
    assert all(
        cell_width(line) <= 100
        for line in text_of(100, reports.show_status, many, 2000.0).splitlines()
    )


def test_loss_that_is_no_number_is_shown_and_is_null_in_json() -> None:
    task = replace(VIEW.tasks[1], loss=float("nan"), metrics={"accuracy": float("inf"), "lr": 0.5})
    assert "  nan   accuracy inf, lr 0.5  " in text_of(
        None, reports.show_status, replace(VIEW, tasks=(task,)), 2000.0
    )
    assert (task_json(task)["loss"], task_json(task)["metrics"]) == (None, {"lr": 0.5})


def test_narrow_terminal_shows_reasons_below_table() -> None:
    reason = (
        "the gang started again: worker:2 on n4 failed: TensorFlow heard nothing more of worker:1"
    )
    tasks = tuple(
        replace(task, reason=reason if task.state == "running" else None) for task in VIEW.tasks
    )
    text = text_of(60, reports.show_status, replace(VIEW, tasks=tasks), 2000.0)
    table, _, below = text.partition("ps:0,worker:0: ")
    assert "reason" not in table and "gang" not in table
    assert " ".join(below.partition("cause:")[0].split()) == reason


def test_exec_table_folds_equal_outputs() -> None:
    assert text_of(None, reports.show_exec, AWAY[:1]).endswith("192.0.2.1:22: No route to host\n")
    assert (
        text_of(None, reports.show_exec, AWAY)
        == "--- n[1-2] (2 hosts) no exit code\n[n[1-2]] No route to host\n"
    )
    assert (
        text_of(None, reports.show_exec, EXEC)
        == "--- n[01-16] (16 hosts)\nok\n--- big exit 1\nno\n"
    )


def test_exec_shows_long_lines_whole() -> None:
    row = {**EXEC[0], "stdout": "x" * 9000 + "\t\x1b[31my\n", "stderr": "z" * 9000}
    lines = text_of(None, reports.show_exec, [row]).splitlines()
    assert lines[1:] == ["x" * 9000 + " " * 8 + "y", "z" * 9000]


def test_stop_table_names_survivors() -> None:
    assert text_of(None, reports.show_stop, STOPPED).splitlines() == [
        "n[1-2]: stopped",
        "n3: 1 process still alive",
        "host  alive  state  command",
        "n3    7      D      python train.py",
    ]


def test_sync_table() -> None:
    assert text_of(None, reports.show_sync, SYNCED).splitlines() == [
        "host  sync    sent    took",
        "n2    ok      1.2 MB  1:05",
        "n3    failed  0 B     0.1 s  disk full",
        "n1: had everything already",
    ]


def test_remaining_files_are_shown_with_line_that_keeps_them() -> None:
    text = text_of(
        None, reports.show_left_files, {"n2": ["out/model.ckpt", "out/events", "plot.png"]}
    )
    assert (
        text == "left on n2: out/model.ckpt, out/events, plot.png\n"
        "to carry these folders over to later runs, add to `keep`: out\n"
    )
    below = {"n2": ["src/out/model.ckpt", "src/plot.png", "logs/x"]}
    assert text_of(None, reports.show_left_files, below, "src").endswith(
        "later runs, add to `keep`: logs, src/out\n"
    )
    assert "`keep`" not in text_of(
        None, reports.show_left_files, {"n2": ["src/plot.png", "log"]}, "src"
    )


ROW: dict[str, Any] = {
    "run": "digits-20261121-101500-3fa1",
    "job": "digits",
    "state": "lost",
    "live": False,
    "started": "1970-01-01T00:00:01Z",
    "ended": None,
    "tasks": 3,
    "hosts": ["n1"],
    "who": "me@here",
}


def test_runs_have_ages_and_durations() -> None:
    began = 1_000_000.0
    started, ended = iso_z(began), iso_z(began + 3 * 3600 + 12 * 60 + 0.25)
    rows = [
        {**ROW, "run": "a", "state": "running", "live": True, "started": started},
        {**ROW, "run": "b", "state": "failed", "started": started, "ended": ended},
        {**ROW, "run": "c", "started": started},
        {**ROW, "run": "d", "state": None, "live": None, "started": None, "who": None},
    ]
    assert text_of(None, reports.show_runs, rows, began + 5 * 86400.0 + 7200.0).splitlines() == [
        "run  state    began    took     tasks  hosts  by",
        "a    running  5 d ago  5 d 2 h  3      n1     me@here",
        "b    failed   5 d ago  3:12:00  3      n1     me@here",
        "c    lost     5 d ago           3      n1     me@here",
        "d    ?                          3      n1",
    ]


def test_rough_durations() -> None:
    seconds = (-5, 0.9, 59, 60, 3599, 3600, 100_000, 172_800, 400 * 86400)
    assert [format_roughly(value) for value in seconds] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min",
        "59 min",
        "1 h",
        "27 h",
        "2 d",
        "400 d",
    ]
    exact = [
        format_roughly(value, parts=2)
        for value in (90, 3600, 3659, 3660, 172_800, 176_399, 176_400)
    ]
    assert exact == ["1 min", "1 h", "1 h", "1 h 1 min", "2 d", "2 d", "2 d 1 h"]


REPORTS = [
    (reports.show_status, VIEW, 2000.0),
    (reports.show_stop, STOPPED),
    (reports.show_sync, SYNCED),
    (reports.show_exec, EXEC),
    (reports.show_runs, [ROW], 1000.0),
]


@pytest.mark.parametrize("width", [20, 24, 40, 80, 200])
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report[0].__name__)
def test_never_wider_than_the_terminal(width: int, report: tuple[Any, ...]) -> None:
    lines = text_of(width, *report).splitlines()
    assert lines
    assert max(map(cell_width, lines)) <= width


WORDS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.integers(8, 100))
def test_any_cells_fit_any_width(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = table_lines(["task", "host", "state"], rows, width)
    assert all(line.isprintable() and cell_width(line) <= width for line in lines)


def test_status_of_failed_run_says_what_to_change() -> None:
    out = io.StringIO()
    failed = replace(VIEW, state="failed")
    reports.show_status(Terminal(out, None, False), failed, 2000.0, advice="; rename tokenize.py")
    assert out.getvalue().endswith(" -n 100`; rename tokenize.py\n")


def test_labels_of_a_plan_are_apart_from_their_texts() -> None:
    heading = (("mode", "sync"), ("on a death", "if a worker dies, the others wait"))
    text = text_of(120, reports.show_plan, heading, ("task",), (), (), ())
    assert text.startswith("mode:       sync\non a death: if a worker dies, the others wait\n")


def test_colour_does_not_change_width() -> None:
    out = io.StringIO()
    reports.show_status(Terminal(out, 80, True), VIEW, 2000.0)
    assert "\x1b[1;31mfailed: 3\x1b[0m" in out.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()) == text_of(
        80, reports.show_status, VIEW, 2000.0
    )


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["n1"], "n1"),
        ([f"n{i:02}" for i in range(1, 17)], "n[01-16]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n1", "n3", "n2", "n7", "big"], "n[1-3,7],big"),
        (["gpu-3.lab", "gpu-4.lab"], "gpu-[3-4].lab"),
        (["a", "b", "a"], "a,b"),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold_names(names) == folded


def test_equal_items_are_folded() -> None:
    assert group_equal({"a": 1, "b": 2, "c": 1}) == [(("a", "c"), 1), (("b",), 2)]


def test_sizes_durations_and_numbers() -> None:
    sizes = [0, 999, 1000, 1_234_567, 12_345_678, 999_600, 5e15]
    assert [format_bytes(n) for n in sizes] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.2 MB",
        "12 MB",
        "1.0 MB",
        "5000 TB",
    ]
    assert [format_duration(s) for s in (0.31, 42, 59.7, 185, 7385, 180_000)] == [
        "0.3 s",
        "42 s",
        "1:00",
        "3:05",
        "2:03:05",
        "2 d 2 h",
    ]
    assert [format_number(x) for x in (None, 0.31117, 12, 1200, 123456, 3.1e-7, 1234.5)] == [
        "",
        "0.3112",
        "12",
        "1200",
        "123,456",
        "3.1e-07",
        "1,234",
    ]
