"""Test the HTML page of a report: what it contains, and how large it is.

No text from a program or a host becomes markup.
"""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.browser import load_in_browser
from support.dashboard_scenes import PLAN, dying, ended, plan_of, training
from tfdeploy.errors import HostFailed
from tfdeploy.model.answers.samples import GpuSample, HostSample, SampledHost, TaskSample
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.run_report import LastLine, RunReport
from tfdeploy.model.status.run_status import RunView
from tfdeploy.model.status.task_status import TaskView
from tfdeploy.ui.report.page import report_page

VOID = {"meta", "br", "line", "rect", "circle", "polyline"}
EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;owned\x07‮&amp;\"'"


class Reader(HTMLParser):
    """Collects the words and the elements of a page. Fails if the elements are not nested
    correctly.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.tags == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def view_of(plan: Plan, state: str = "running", reason: str | None = None) -> RunView:
    tasks = tuple(
        TaskView(
            task=t.task,
            host=t.host,
            state="running",
            address=t.address,
            gpus=t.gpus,
            attempt=1,
            started=1010.0,
            reason=reason,
        )
        for t in plan.tasks
    )
    return RunView(
        run=plan.run,
        job=plan.job,
        mode=plan.mode,
        state=state,
        started=1000.0,
        ended=None,
        tasks=tasks,
    )


def report_of(plan: Plan = PLAN, *, samples: int = 30, name: str = "accuracy") -> RunReport:
    rows = [
        TaskSample(
            time=1010.0 + 10 * n,
            attempt=1,
            cpu=0.5,
            memory=1 << 30,
            printed={"step": n * 100.0, "loss": 1 / (n + 1), name: n},
        )
        for n in range(samples)
    ]
    tasks_of_plan = [
        HostSample(
            time=1010.0 + 10 * n,
            cpu=1.0,
            rates={"sent": 10},
            gpus=[GpuSample(0, 50.0, 1 << 30, 80 << 30)],
        )
        for n in range(samples)
    ]
    return RunReport(
        plan=plan,
        view=view_of(plan),
        made=1400.0,
        tasks={task.task: rows for task in plan.tasks},
        hosts={host.host: tasks_of_plan for host in plan.hosts},
        machines={host.host: SampledHost(cores=8, memory=1 << 34) for host in plan.hosts},
        events=tuple(training()),
    )


def test_page_has_all_sections_and_charts() -> None:
    read = Reader(report_page(report_of()))
    heads = [word for word in read.words if word[:1].isupper()]
    for section in (
        "Tasks",
        "Curves",
        "Timeline",
        "Events",
        "Plan",
        "Versions",
        "To run the program again",
    ):
        assert section in heads
    for chart in (
        "steps/s",
        "loss",
        "accuracy",
        "CPU",
        "memory",
        "GPU",
        "GPU memory",
        "hosts: CPU",
        "hosts: sent",
    ):
        assert chart in read.words
    assert "tfdeploy launch --mode async -- python train.py" in read.text
    assert "worker:0@n2 running pid 4242" in read.text and "3.11.7" in read.text
    # No host has received data, so this row is missing.
    assert "hosts: received" not in read.words


def test_page_loads_and_runs_nothing() -> None:
    read = Reader(report_page(report_of()))
    assert {tag for tag, _ in read.seen} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "form",
        "a",
    } == set()
    policy = next(
        of["content"]
        for tag, of in read.seen
        if tag == "meta" and of.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy and policy.startswith("default-src 'none'")
    assert not any(
        name.startswith("on") or name in ("src", "href", "style")
        for _, of in read.seen
        for name in of
    )


def test_failed_run_shows_cause_and_last_lines() -> None:
    view = replace(
        view_of(PLAN, "failed"),
        cause="worker:1 on n3 failed with exit code 1",
        first_death="worker:1",
        ended=1034.0,
    )
    lines = (
        LastLine(1033.0, "Traceback (most recent call last):"),
        LastLine(1033.0, "ValueError: bad shard"),
    )
    events = (*training(), *dying(), *ended())
    read = Reader(
        report_page(
            replace(
                report_of(),
                view=view,
                last_lines=lines,
                events=events,
                errors={"n4": HostFailed("no answer in 10 s")},
            )
        )
    )
    assert "worker:1 on n3 failed with exit code 1" in read.words
    assert (
        "ValueError: bad shard" in read.text
        and "n4 gave no samples: no answer in 10 s" in read.text
    )
    assert any(of.get("class") == "bar bad" for _, of in read.seen)


def test_no_text_of_program_or_host_becomes_markup() -> None:
    host = replace(PLAN.hosts[0], versions={EVIL: EVIL})
    evil = replace(
        report_of(name=EVIL),
        view=replace(view_of(PLAN, reason=EVIL), cause=EVIL, first_death=EVIL),
        plan=replace(
            PLAN, command=("python", EVIL), operator=EVIL, data={EVIL: EVIL}, hosts=(host,)
        ),
        last_lines=(LastLine(1.0, EVIL),),
        errors={EVIL: HostFailed(EVIL)},
    )
    text = report_page(evil)
    read = Reader(text)
    assert {tag for tag, _ in read.seen} & {"script", "img"} == set()
    assert not any(name.startswith("on") for _, of in read.seen for name in of)
    assert "\x1b" not in text and "‮" not in text and "\x07" not in text


@given(st.text(max_size=60), st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e9))
def test_any_name_and_number_can_be_shown(name: str, value: float, time: float) -> None:
    rows = [
        TaskSample(time=1000 + time, attempt=1, printed={name or "x": value, "step": abs(value)}),
        TaskSample(time=2e9, cpu=value),
    ]
    changed = replace(
        report_of(samples=1), tasks={"worker:0": rows}, view=view_of(PLAN, reason=name)
    )
    text = report_page(changed)
    Reader(text)
    assert all(char.isprintable() or char in "\n" for char in text)


def test_page_of_large_run_has_few_megabytes() -> None:
    report = report_of(plan_of(255), samples=500)
    text = report_page(report)
    assert len(text) < 16 << 20
    assert "256 curves" in text


def test_live_page_reloads_until_run_ends() -> None:
    assert 'http-equiv="refresh"' in report_page(report_of(), live=True)
    ended_report = replace(report_of(), view=replace(view_of(PLAN, "succeeded"), ended=1100.0))
    assert 'http-equiv="refresh"' not in report_page(ended_report, live=True) + report_page(
        report_of()
    )


def test_real_browser_shows_page_without_error(tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(report_page(report_of()), encoding="utf-8")
    shown, complaints = load_in_browser((tmp_path / "run.html").as_uri(), tmp_path / "profile")
    assert shown.count("<svg") >= 9 and not complaints
