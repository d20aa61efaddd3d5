"""Test the table with all samples (measurements) of a run."""

from __future__ import annotations

from dataclasses import replace

from support.dashboard_scenes import PLAN
from tfdeploy.model.answers.samples import GpuSample, HostSample, TaskSample
from tfdeploy.model.report.run_report import RunReport, sample_table
from tfdeploy.model.status.run_status import RunView
from tfdeploy.model.status.task_status import TaskView

TASKS = (
    TaskView(task="ps:0", host="n1", state="running", address="", gpus=()),
    TaskView(task="worker:0", host="n2", state="running", address="", gpus=(0, 2)),
)
VIEW = RunView(
    run="r1", job="digits", mode="async", state="running", started=1000.0, ended=None, tasks=TASKS
)
PRINTED = {"step": 5.0, "loss": 0.25, "val_loss": 0.5, "local_step": 2.0}
WORKER = [
    TaskSample(
        time=1010.5,
        attempt=1,
        cpu=0.5,
        memory=100,
        printed={"step": 5.0, "loss": 0.25, "val_loss": 0.5, "local_step": 2.0},
    ),
    TaskSample(time=1020.0, attempt=2, printed={"time": 3.0}),
    TaskSample(time=9000.0, attempt=2),
]
HOST_SAMPLES = [
    HostSample(
        time=1010.5,
        gpus=[GpuSample(0, 40.0, 7, 80), GpuSample(1, 100.0, 9, 80), GpuSample(2, 60.0, 5, 80)],
    ),
    HostSample(time=1020.0, gpus=[GpuSample(0, None, None, None)]),
]
REPORT = RunReport(
    plan=PLAN, view=VIEW, made=1100.0, tasks={"worker:0": WORKER}, hosts={"n2": HOST_SAMPLES}
)


def test_row_for_each_task_and_time_has_every_metric() -> None:
    ps = [TaskSample(time=1010.5, attempt=1, cpu=0.125)]
    headers, rows = sample_table(
        replace(REPORT, tasks={"worker:0": WORKER, "ps:0": ps, "worker:9": WORKER})
    )
    assert ",".join(headers) == (
        "time,seconds,task,host,attempt,step,loss,metric "
        "time,val_loss,cpu_cores,memory_bytes,gpu_percent,gpu_memory_bytes"
    )
    assert rows == [
        [
            "1970-01-01T00:16:50.500Z",
            10.5,
            "ps:0",
            "n1",
            1,
            None,
            None,
            None,
            None,
            0.125,
            None,
            None,
            None,
        ],
        [
            "1970-01-01T00:16:50.500Z",
            10.5,
            "worker:0",
            "n2",
            1,
            5.0,
            0.25,
            None,
            0.5,
            0.5,
            100,
            50.0,
            12,
        ],
        [
            "1970-01-01T00:17:00Z",
            20.0,
            "worker:0",
            "n2",
            2,
            None,
            None,
            3.0,
            None,
            None,
            None,
            None,
            None,
        ],
        ["1970-01-01T02:30:00Z", 8000.0, "worker:0", "n2", 2, *[None] * 8],
    ]


def test_gpu_sample_is_used_for_ten_minutes() -> None:
    for time, busy in ((1010.0, None), (1011.0, 50.0), (1610.0, 50.0), (1611.0, None)):
        report = replace(
            REPORT,
            tasks={"worker:0": [TaskSample(time=time, attempt=1)]},
            hosts={"n2": HOST_SAMPLES[:1]},
        )
        assert sample_table(report)[1][0][-2] == busy


def test_run_without_samples_has_only_headers() -> None:
    headers, rows = sample_table(replace(REPORT, tasks={}))
    assert (len(headers), rows) == (11, [])
