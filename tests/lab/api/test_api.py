"""Test the Python API on real hosts. Each test runs the script of a user in a separate process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.jobs import PROGRAMS, write_job
from support.schemas import find_faults
from support.waiting import wait_for
from tfdeploy.lab import Lab
from tfdeploy.model.output.printed import schema_of

PAGE = Path(__file__).parents[3] / "docs/api.md"
# In this script, two threads each launch a run at the same time. Then the script uses every method.
EVERYTHING = """
import json, threading
import tfdeploy
from tfdeploy.errors import RunFailed, UsageError

answers = {
    "launch-dry-run": [tfdeploy.plan("a.yaml")], "status": [], "logs": [], "fetch": [], "stop": []
}

def follow(job, steps):
    command = ["python", "quick.py", f"--steps={steps}"]
    with tfdeploy.launch(tfdeploy.Job.load(job), command=command) as run:
        answers["status"].append(run.status())
        answers["logs"] += list(run.logs(follow=True, task=["worker:0"], grep="^step"))
        answers["status"].append(run.wait())
        answers["fetch"].append(run.fetch(logs=True, to=job + ".out"))

threads = [threading.Thread(target=follow, args=each) for each in (("a.yaml", 20), ("b.yaml", 30))]
for each in threads:
    each.start()
for each in threads:
    each.join()

run = tfdeploy.launch("a.yaml", name="a-long", command=["python", "quick.py", "--steps=100000"])
again = tfdeploy.Run("a-lo", job="a.yaml")
assert again.name == run.name == tfdeploy.Run(job=tfdeploy.Job.load("a.yaml")).name
assert run.wait(timeout=0.1)["state"] == "running"
assert len(list(again.logs(lines=1, limit="n1"))) == 1
assert "running" in again._repr_mimebundle_()["text/html"]
answers["stop"].append(again.stop(grace="1s"))
try:
    run.wait()
except RunFailed as error:
    assert error.where and "a-long" in error.next
else:
    raise AssertionError("a stopped run counts as succeeded")
try:
    tfdeploy.Run("nowhere", inventory=tfdeploy.Inventory.load())
except UsageError as error:
    assert error.next
else:
    raise AssertionError("an unknown run was found")
json.dump(answers, open("answers.json", "w"))
"""
WAITING = """
import tfdeploy
print("up", tfdeploy.launch().name, flush=True)
tfdeploy.Run().wait()
"""


@pytest.fixture(scope="module")
def operator(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tfdeploy]:
    made = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("api") / "operator")
    yield made
    made.end_all()
    made.stop_all()


@pytest.fixture
def start(operator: Tfdeploy) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Return a function. start(text) runs the script `text` in the operator's folder, in a process
    session of its own."""
    begun: list[subprocess.Popen[str]] = []

    def start_script(text: str) -> subprocess.Popen[str]:
        script = operator.cwd / "script.py"
        script.write_text(text)
        begun.append(
            subprocess.Popen(
                operator.lab.operator_command([sys.executable, str(script)]),
                cwd=operator.cwd,
                env=operator.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return begun[-1]

    yield start_script
    for each in begun:
        if each.poll() is None:
            each.kill()
        each.communicate()


Start = Callable[[str], "subprocess.Popen[str]"]


def test_the_example_of_the_page(operator: Tfdeploy, start: Start) -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    write_job(operator, "api-example", "quick.py", "--steps=20")
    program = (PROGRAMS / "quick.py").read_text()
    line = '    parser.add_argument("--save"'
    assert line in program
    with_rate = f'    parser.add_argument("--rate", type=float)\n{line}'
    (operator.cwd / "quick.py").write_text(program.replace(line, with_rate))
    code, output = wait_for_end(start(example[1]), 120)
    assert code == 0, output
    *done, losses = output.splitlines()
    assert [line.partition(": ")[2] for line in done] == ["done at step 20"] * 2
    assert losses == "{'0.1': 0.05, '0.01': 0.05}"
    for rate in ("0.1", "0.01"):
        assert len(list((operator.cwd / "results" / rate / "logs").glob("*.log"))) == 3


def test_two_threads_use_everything_and_nothing_is_printed(
    operator: Tfdeploy, start: Start
) -> None:
    for name in ("a", "b"):
        write_job(operator, f"api-{name}", "quick.py", code=".")
        (operator.cwd / "tfdeploy.yaml").rename(operator.cwd / f"{name}.yaml")
    code, output = wait_for_end(start(EVERYTHING), 180)
    assert (code, output) == (0, "")
    answers = json.loads((operator.cwd / "answers.json").read_text())
    assert len(answers["logs"]) == 50
    for name, values in answers.items():
        schema = schema_of(name)
        assert values and not [
            fault
            for value in values
            for fault in find_faults(value, schema, schema.get("$defs", {}))
        ]


def test_ctrl_c_ends_the_wait_and_not_the_run(operator: Tfdeploy, start: Start) -> None:
    write_job(operator, "api-wait", "quick.py", "--steps=100000")
    script = start(WAITING)
    assert script.stdout is not None
    run = script.stdout.readline().split()[1]
    script.send_signal(signal.SIGINT)
    code, output = wait_for_end(script)
    assert code != 0 and output.endswith("KeyboardInterrupt\n")
    assert operator.state(run) == "running"
    operator.run("stop", run, "--now", exit_code=0)


def test_ctrl_c_undoes_a_launch(operator: Tfdeploy, start: Start) -> None:
    # ps:0 opens no port. So the launch waits for `ready.after`, which is 100 s, before it commits
    # the run.
    ready = {"after": "100s", "timeout": "110s"}
    write_job(operator, "api-undone", "quick.py", "--unready=ps:0", ready=ready)
    script = start('import tfdeploy\ntfdeploy.launch(name="undone-1")\n')
    wait_for(lambda: operator.marked("n1", "undone-1"), 60, "ps:0 has started")
    script.send_signal(signal.SIGINT)
    code, output = wait_for_end(script)
    assert code != 0 and output.endswith("KeyboardInterrupt\n")
    assert not any(operator.marked(host, "undone-1") for host in operator.lab.hosts)
