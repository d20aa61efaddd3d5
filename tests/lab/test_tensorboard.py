"""Test `tfdeploy tensorboard` with a real TensorBoard. Its pages are forwarded through the SSH
session, and no process remains on the host, however tfdeploy ends.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.browser import RecordingBrowser
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.hosts import set_inventory
from support.lab.jobs import write_job
from support.stopwatch import DEADLINE_S
from support.waiting import wait_for
from tfdeploy.lab import Lab

UP_S = 90
GONE_S = 20


@pytest.fixture(scope="module")
def operator(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tfdeploy]:
    made = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("tensorboard") / "operator")
    write_job(made, "boards", "events.py", keep=["ckpt"])
    made.run("launch", "--wait", "-q", exit_code=0)
    yield made
    made.end_all()


def boards(operator: Tfdeploy) -> list[str]:
    """Return the command lines of the TensorBoard processes on the lab's hosts. These processes are
    visible here, because the lab's hosts run on this machine.
    """
    listed = subprocess.run(
        ["ps", "-wweo", "args"], capture_output=True, text=True, check=True
    ).stdout
    return [
        line
        for line in listed.splitlines()
        if "--logdir" in line and str(operator.lab.root) in line
    ]


def folders(operator: Tfdeploy) -> list[Path]:
    return list(Path(operator.lab.root).glob("hosts/*/home/tfdeploy/boards/runs/*/.tensorboard-*"))


def fetch(url: str) -> list[str]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        url, timeout=DEADLINE_S
    ) as answer:
        return list(json.load(answer))


def start(
    operator: Tfdeploy, *args: str, env: dict[str, str] | None = None
) -> tuple[subprocess.Popen[str], str]:
    """Start `tfdeploy tensorboard`. Return the process and its URL."""
    process = operator.start("tensorboard", "-q", *args, env=env)
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.startswith("http://127.0.0.1:"), line + process.stdout.read()
    return process, line


def assert_closed_to_others(operator: Tfdeploy, url: str) -> None:
    """Check that other users of the host or of this machine cannot open the page, although they can
    connect to the port and read the command lines of all processes.
    """
    path = urllib.parse.urlsplit(url).path
    assert re.fullmatch("/[0-9a-f]{32}/", path)
    for line in boards(operator):
        assert path.strip("/") not in line
    ports = {
        port_match.group(1)
        for port_match in (re.search(r"--port (\d+)", line) for line in boards(operator))
        if port_match
    }
    for port in (*ports, str(urllib.parse.urlsplit(url).port)):
        for wrong in ("/", "/data/runs", "/" + "0" * 32 + "/data/runs", path[:-2] + "/data/runs"):
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                fetch(f"http://127.0.0.1:{port}{wrong}")
            refused.value.close()


def test_it_shows_what_the_run_wrote_in_cwd_and_keep_and_ctrl_c_ends_it(
    operator: Tfdeploy, tmp_path: Path
) -> None:
    browser = RecordingBrowser(tmp_path / "browser")
    process, url = start(operator, "--open", env={"BROWSER": str(browser.program)})
    assert boards(operator)
    wait_for(
        lambda: sorted(fetch(url + "data/runs")) == ["ckpt/kept", "train"],
        UP_S,
        "both folders are shown",
    )
    assert_closed_to_others(operator, url)
    leading_there = browser.assert_led_to(url)
    process.send_signal(signal.SIGINT)
    assert wait_for_end(process, GONE_S)[0] == 0 and not leading_there.parent.exists()
    wait_for(lambda: not boards(operator) and not folders(operator), GONE_S, "nothing is left")


def test_the_scalars_are_metrics_of_the_deciding_task_wherever_metrics_are(
    operator: Tfdeploy,
) -> None:
    written = {"train/loss": 0.5, "kept/accuracy": 0.5}
    expected = {"ps:0": {}, "worker:0": {**written, "accuracy": 0.5}, "worker:1": {}}

    def metrics() -> dict[str, dict[str, float]]:
        return {task["task"]: task["metrics"] for task in operator.json("status")["tasks"]}

    # The last sample may be taken after the end of the run.
    wait_for(lambda: metrics() == expected, 20, "the metrics are known")
    assert "accuracy 0.5" in operator.run("status", exit_code=0).stdout
    csv = operator.cwd / operator.run("report", "--output", "csv", exit_code=0).stdout.strip()
    page = operator.cwd / operator.run("report", exit_code=0).stdout.strip()
    assert all(name in path.read_text() for name in written for path in (csv, page))


def test_it_ends_with_tfdeploy_however_that_ends(operator: Tfdeploy) -> None:
    process, url = start(operator, "--host", "n3")
    assert any("/hosts/n3/" in line for line in boards(operator))
    process.kill()
    wait_for(lambda: not boards(operator) and not folders(operator), GONE_S, "nothing is left")
    with pytest.raises(OSError, match="refused"):
        fetch(url)


def test_a_host_without_tensorboard_says_what_to_type(operator: Tfdeploy) -> None:
    bare = operator.home / "bare-python"
    bare.write_text('#!/bin/sh\nexec python3 -S "$@"\n')
    bare.chmod(0o755)
    inventory = operator.env["TFDEPLOY_INVENTORY"]
    set_inventory(operator, defaults={"python": str(bare)})
    write_job(operator, "boardless", "vocal.py")
    try:
        operator.run("launch", "--wait", "-q", exit_code=0)
        answer = operator.json("tensorboard", exit_code=3)["error"]
    finally:
        operator.env["TFDEPLOY_INVENTORY"] = inventory
        write_job(operator, "boards", "events.py", keep=["ckpt"])
    assert "not installed" in answer["what"]
    assert "setup" in answer["next"]
    assert "pip install tensorboard" in answer["next"]


def test_a_host_that_is_not_of_the_run_is_refused(operator: Tfdeploy) -> None:
    assert (
        "'n9' matches no host of" in operator.run("tensorboard", "--host", "n9", exit_code=2).stderr
    )
    assert "not a port" in operator.run("tensorboard", "--port", "x", exit_code=2).stderr
