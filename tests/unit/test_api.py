"""Test the Python API without hosts: names, keyword arguments, errors, and the status table."""

from __future__ import annotations

import inspect
import io
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import rich
from rich.console import Console
from rich.table import Table

import tfdeploy
from support.status_answers import PLAN, RUN, RUNNING, hosts, statuses
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.errors import ConfigError, RunFailed, UsageError
from tfdeploy.model.status.run_status import run_view
from tfdeploy.ui.status_table import draw_tables, status_table

ROOT = Path(__file__).parents[2]
MOST_NAMES = 10
# {verb of the command line: the functions of the API whose keyword arguments are the verb's flags}
CALLABLES = {
    "launch": (tfdeploy.launch, tfdeploy.plan),
    "logs": (tfdeploy.Run.logs,),
    "status": (tfdeploy.Run.status,),
    "stop": (tfdeploy.Run.stop,),
    "fetch": (tfdeploy.Run.fetch,),
}
CURSOR_UP = "\x1b[1A"
OUTPUT = "it shapes output, and the API returns values"
AT_RUN = "Run() and launch() take it, for all methods"
NO_QUESTION = "the verb asks no question that the API could meet"
# {(verb, field of its flags): why the API has no keyword argument for this flag}
LEFT_OUT = {
    **{
        (verb, name): OUTPUT for verb in CALLABLES for name in ("json", "verbose", "quiet", "color")
    },
    **{
        (verb, name): AT_RUN
        for verb in ("logs", "status", "stop", "fetch")
        for name in ("inventory", "job", "parallel", "run_prefix")
    },
    **{(verb, "yes"): NO_QUESTION for verb in ("logs", "status", "stop", "fetch")},
    **{("stop", name): "a run is stopped as a whole" for name in ("limit", "exclude")},
    **{("logs", name): OUTPUT for name in ("timestamps", "highlight", "fold", "output")},
    ("launch", "wait"): "Run.wait()",
    ("launch", "detach"): "launch() always returns once all tasks are up",
    ("launch", "dry_run"): "plan()",
    ("launch", "events"): "status() and logs() give the values",
    ("status", "watch"): "Run.watch()",
    ("fetch", "onto"): "it is about the newest keep of a job, not about a run",
}
# {field of the flags: keyword argument}, where the two have different names.
OTHER_NAMES = {"after_dashes": "command"}
# Keyword arguments of the API that are not flags.
NO_FLAG = {"self"}


def flags_of(verb: str) -> dict[str, Any]:
    """Return {field: default} of the verb's flags."""
    record = import_module(f"tfdeploy.cli.arguments.{verb}").Flags
    return {
        flag_field.name: flag_field.default
        for flag_field in fields(record)
        if flag_field.name != "after_dashes" or record.takes_command
    }


@pytest.mark.parametrize("verb", CALLABLES)
def test_keywords_have_names_and_defaults_of_flags(verb: str) -> None:
    flags = {
        OTHER_NAMES.get(name, name): default
        for name, default in flags_of(verb).items()
        if (verb, name) not in LEFT_OUT
    }
    for api_callable in CALLABLES[verb]:
        keywords = {
            name: keyword.default
            for name, keyword in inspect.signature(api_callable).parameters.items()
            if name not in NO_FLAG
        }
        assert keywords == flags, "docs/api.md, and LEFT_OUT above with the reason"


def test_every_omitted_flag_exists() -> None:
    assert {(verb, name) for verb, name in LEFT_OUT if name not in flags_of(verb)} == set()


def test_run_has_keywords_that_its_methods_lack() -> None:
    parameters = inspect.signature(tfdeploy.Run).parameters
    common = {flag_field.name: flag_field.default for flag_field in fields(CommonFlags)}
    for name in ("inventory", "job", "parallel"):
        assert parameters[name].default == common[name]


def test_names_are_few_and_documented() -> None:
    assert len(tfdeploy.__all__) <= MOST_NAMES
    page = (ROOT / "docs/api.md").read_text()
    for name in tfdeploy.__all__:
        assert inspect.getdoc(getattr(tfdeploy, name)) and f"`{name}" in page
        assert name in dir(tfdeploy)
    for name in (name for name in vars(tfdeploy.Run) if not name.startswith("_")):
        assert inspect.getdoc(getattr(tfdeploy.Run, name)) and f"`{name}(" in page
    with pytest.raises(AttributeError, match="frobnicate"):
        tfdeploy.frobnicate  # noqa: B018


def test_importing_package_loads_no_other_module() -> None:
    program = (
        "import sys; before = set(sys.modules); import tfdeploy; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['tfdeploy']"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which contains a job file and an inventory. The only host of the
    inventory is never contacted.
    """
    (tmp_path / "tfdeploy.yaml").write_text("mode: async\ncommand: [python, train.py]\n")
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories/a.yaml").write_text("hosts: {n1: {address: 192.0.2.1}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TFDEPLOY_INVENTORY", raising=False)
    return tmp_path


def test_job_and_inventory_are_found_or_named(project: Path) -> None:
    assert tfdeploy.Job.load().command == ("python", "train.py")
    assert [host.name for host in tfdeploy.Inventory.load().hosts] == ["n1"]
    (project / "b.yaml").write_text("hosts: {n2: {address: 192.0.2.2}}\n")
    assert [host.name for host in tfdeploy.Inventory.load(project / "b.yaml").hosts] == ["n2"]
    with pytest.raises(ConfigError) as raised:
        tfdeploy.Job.load("none.yaml")
    assert raised.value.where == "none.yaml" and raised.value.next


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mode": "asnyc"}, "'asnyc'"),
        ({"ps": -1}, "0 or more"),
        ({"workers": "many"}, "1 or more"),
        ({"bwlimit": "fast"}, "not a rate"),
        ({"name": "a b"}, "cannot name a run"),
        ({"limit": "n7"}, "n7"),
    ],
)
def test_wrong_values_are_refused_before_any_host_is_contacted(
    project: Path, capfd: pytest.CaptureFixture[str], keywords: Any, message: str
) -> None:
    for call in (tfdeploy.plan, tfdeploy.launch):
        with pytest.raises(UsageError, match=message) as raised:
            call(**keywords)
        assert raised.value.where and raised.value.next
    assert capfd.readouterr() == ("", "")


def test_messages_are_logged_not_printed(
    project: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    shared = project / "shared.yaml"
    shared.write_text("hosts: {n1: {address: 192.0.2.1}}\n")
    shared.chmod(0o666)
    tfdeploy.Inventory.load(shared)
    assert "warning" in caplog.text and str(shared.name) in caplog.text
    assert capfd.readouterr() == ("", "")
    shared.chmod(0o600)


def text_of(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as drawn:
        console.print(table)
    return drawn.get()


def test_table_has_state_and_tasks_but_no_control_characters() -> None:
    reason = "\x1b]0;title\x07[red]starts again"
    ill = statuses(("worker:1", "running", None, {"up": True, "reason": reason}))
    view = run_view(PLAN, hosts(), {**RUNNING, **ill})
    text = text_of(status_table(view, now=1060.0))
    assert all(word in text for word in (RUN, "async", "running", "worker:1", "n3", "[red]starts"))
    assert "\x1b" not in text and "\x07" not in text


class Notebook:
    """Stands in for IPython's display. It stores what the output of a notebook cell shows."""

    def __init__(self) -> None:
        self.shown: list[Table] = []

    def display(self, table: Table, *, display_id: bool) -> Notebook:
        assert display_id and not self.shown
        self.update(table)
        return self

    def update(self, table: Table) -> None:
        self.shown.append(table)


def test_tables_replace_each_other_in_notebook(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    notebook, module = Notebook(), ModuleType("IPython.display")
    module.__dict__["display"] = notebook.display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(rich.get_console(), "is_jupyter", True)
    tables = [status_table(run_view(PLAN, hosts(), RUNNING), now) for now in (1060.0, 1070.0)]
    draw_tables(iter(tables))
    assert notebook.shown == tables and capfd.readouterr() == ("", "")


def test_tables_replace_each_other_on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("rich._console", Console(file=out, force_terminal=True, width=120))
    draw_tables(iter([Table("first"), Table("second")]))
    drawn = out.getvalue()
    assert "first" in drawn and "second" in drawn.partition(CURSOR_UP)[2]


def test_text_of_error_has_no_control_characters() -> None:
    error = RunFailed("worker:0 failed: \x1b]0;title\x07no\nits last lines:\u202e", where="n1")
    assert str(error) == "worker:0 failed: ]0;titleno\nits last lines:"
    assert error.what.endswith("\u202e")
    assert str(RunFailed("a\tb\u3000c\xa0d")) == "a\tb\u3000c\xa0d"
