"""Test secrets and audit logs. Only the program may see a secret with a unique text (a canary), and
no copy of the canary may remain. The audit logs must be complete.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.leaks import encoded_forms, find_leaks, find_shown
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
KILLS, MANY_KILLS = 2, 100
WAITS_S = 3.0
# The command line of each process is checked at most this many times. A process changes its command
# line only by executing another program, usually soon after its start.
LOOKS = 20
MARK = f"c4nary{os.urandom(4).hex()}"
CANARIES = {
    "TOKEN": f"{MARK}-token",
    "FILE": f'{MARK}/+ "<é>\\\n{MARK}-line-two\n',
    "TOLD": f"{MARK}=told",
}
HASTY = f"""import sys
from tfdeploy.agent.record import replace
from tfdeploy.cli.main import main
from tfdeploy.planning import host_parts
whole = host_parts._host_part
host_parts._host_part = lambda *plan: replace(
    whole(*plan), start_within_s={WAITS_S}, commit_within_s={WAITS_S}
)
sys.exit(main())
"""
SHOWS = """import base64, json, os, sys, time, urllib.parse
for name in ("TOKEN", "FILE", "TOLD"):
    text = os.environ[name]
    for before in range(3):
        print(base64.b64encode(b"x" * before + text.encode()).decode())
        print(base64.urlsafe_b64encode(b"x" * before + text.encode()).decode())
    print(
        text, urllib.parse.quote(text), urllib.parse.quote_plus(text), json.dumps(text),
        repr(text), repr(text.encode())
    )
    for at in range(0, len(text), 3):
        sys.stderr.write(text[at:at + 3]); sys.stderr.flush(); time.sleep(0.002)
print("all shown", flush=True)
if "--die" in sys.argv:
    raise SystemExit("no good: " + os.environ["TOKEN"])
time.sleep(1000)
"""
WANTED = sorted(form.encode() for text in CANARIES.values() for form in encoded_forms(text))


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    made = tfdeploy(few_hosts)
    made.env["TOKEN"] = CANARIES["TOKEN"]
    (made.home / "secret-file").write_text(CANARIES["FILE"] + "\n")
    (made.home / "told").write_text(CANARIES["TOLD"] + "\n")
    sources = {
        "TOKEN": "env",
        "FILE": {"file": "~/secret-file"},
        "TOLD": {"command": ["cat", "../told"]},
    }
    write_job(made, "canary", "quick.py", flags="none", secrets=sources, stop={"grace": "1s"})
    (made.cwd / "quick.py").write_text(SHOWS)
    return made


@pytest.fixture
def watcher() -> Iterator[list[str]]:
    """Return a list of all command lines in which a canary was visible during the test. All
    processes on this machine and on its lab hosts are watched.
    """
    seen: list[str] = []
    looked_at: Counter[str] = Counter()
    over = threading.Event()

    def watch() -> None:
        mark = MARK.encode()
        while not over.wait(0.05):
            pids = set(filter(str.isdigit, os.listdir("/proc")))
            for gone in looked_at.keys() - pids:
                del looked_at[gone]
            for pid in [pid for pid in pids if looked_at[pid] < LOOKS]:
                looked_at[pid] += 1
                with suppress(OSError):
                    line = Path("/proc", pid, "cmdline").read_bytes()
                    if mark in line:
                        seen.append(line.replace(b"\0", b" ").decode(errors="replace"))

    thread = threading.Thread(daemon=True, target=watch)
    thread.start()
    yield seen
    over.set()
    thread.join()


def killed(operator: Tfdeploy, number: int, chance: random.Random) -> str:
    """Kill a launch at a random moment. Return its output and its events."""
    events = operator.home / f"events-{number}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "program", ["-c", HASTY])
        process = operator.start(
            "launch", "--detach", "-v", "--name", f"canary-{number}", "--events", str(events)
        )
    step = chance.choice(("probe", "sync", "prepare", "start", "commit"))
    begun = f'"step": "{step}"'.replace(" ", "").encode()

    def reached() -> bool:
        return process.poll() is not None or (
            events.exists() and begun in events.read_bytes().replace(b" ", b"")
        )

    wait_for(reached, 60, step, poll_s=0.005)
    with suppress(subprocess.TimeoutExpired):
        process.wait(chance.random() * 0.2)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, output = wait_for_end(process)
    return output + events.read_text(errors="replace") if events.exists() else output


def kills(operator: Tfdeploy, count: int, seed: int) -> None:
    """Kill `count` launches at random moments, and check that their secrets stay secret.

    No output may show a canary. Once the hosts no longer wait for the launches, no file on a host
    may contain a canary.
    """
    chance = random.Random(seed)
    for number in range(count):
        assert find_shown(killed(operator, number, chance), WANTED) == [], number
    committed = {row["run"] for row in operator.json("runs")["runs"] if row["live"]}
    for run in committed:
        operator.run("stop", run, "--now")
    wait_for(
        lambda: (
            operator.run("status").returncode in (0, 2)
            and not find_leaks(operator, WANTED, "~/tfdeploy")
        ),
        40,
        "all secrets are gone",
    )


def test_a_canary_is_seen_by_its_program_alone_and_the_audit_says_where_it_was(
    operator: Tfdeploy, watcher: list[str]
) -> None:
    lab, run = operator.lab, "canary-live"
    kills(operator, KILLS, seed=1)
    outputs = [operator.run("launch", "--detach", "--json", "-v", "--name", run, exit_code=0)]
    wait_for(
        lambda: (
            operator.run("logs", run, "--output", "raw").stdout.count("all shown") == len(lab.hosts)
        ),
        60,
        "it has shown all",
    )
    at = {
        host: [path.rpartition("/")[2] for path in paths]
        for host, paths in find_leaks(operator, WANTED, "~/tfdeploy").items()
    }
    assert at == {host: ["env.json"] for host in lab.hosts}
    outputs += [
        operator.run(*args, run)
        for args in (("logs", "--json"), ("status", "--json"), ("audit", "--json"))
    ]
    assert outputs[1].stdout.count("***") > 20 * len(lab.hosts)
    live = json.loads(outputs[-1].stdout)
    assert (
        live["ok"]
        and outputs[-1].returncode == 0
        and {row["forgotten"] for row in live["secrets"]} == {False}
    )

    folder = f"~/tfdeploy/canary/runs/{run}/hosts/n2"
    minder = json.loads(on_host(lab, "n2", f"cat {folder}/state.json"))["minder_pid"]
    supervisors = [
        json.loads(on_host(lab, "n2", f"cat {folder}/tasks/*/status.json"))["supervisor_pid"]
    ]
    on_host(lab, "n2", f"kill -9 {minder} {' '.join(map(str, supervisors))}")
    operator.run("stop", run, exit_code=0)
    check_log(operator, operator.json("audit", run))

    assert find_leaks(operator, WANTED, "~/tfdeploy") == {}
    (operator.cwd / "quick.py").write_text(SHOWS)
    job = operator.cwd / "tfdeploy.yaml"
    # On a busy machine, a dying task lives longer than 300 ms.
    job.write_text(job.read_text().replace("300ms", "60s"))
    outputs.append(
        operator.run(
            "launch",
            "--name",
            "canary-dies",
            "-v",
            "--",
            "python",
            "quick.py",
            "--die",
            exit_code=1,
        )
    )
    assert "no good: ***" in outputs[-1].stderr
    rolled_back = operator.json("audit", "canary-dies")
    assert (
        "rolled back" in {row["outcome"] for row in rolled_back["entries"]}
        and rolled_back["left"] == []
    )
    # This is checked before the next command, which has the secret in its own arguments.
    assert watcher == []
    outputs.append(operator.run("launch", "--", "python", f"--x={CANARIES['TOLD']}", exit_code=2))
    assert [find_shown(done.stdout + done.stderr, WANTED) for done in outputs] == [[]] * len(
        outputs
    )
    assert find_leaks(operator, WANTED, "~/tfdeploy") == {}
    state = [path for path in (operator.home / "state").rglob("*") if path.is_file()]
    assert state and [path for path in state if find_shown(path.read_bytes(), WANTED)] == []


def check_log(operator: Tfdeploy, answer: dict[str, Any]) -> None:
    """Check the entries of the run in the audit log of each host.

    Also check that `audit` reports a line that is not an entry, and still shows the other entries.
    """
    assert (
        answer["ok"]
        and answer["left"] == []
        and {row["forgotten"] for row in answer["secrets"]} == {True}
    )
    by_host = {
        host: [row["outcome"] for row in answer["entries"] if row["host"] == host]
        for host in operator.lab.hosts
    }
    assert by_host["n1"][:2] == ["prepared", "committed"] and set(by_host["n3"]) == {
        "prepared",
        "committed",
        "stopped",
    }
    assert {row["verb"] for row in answer["entries"]} == {"launch", "stop"}
    one = answer["entries"][0]
    assert (
        one["operator"].endswith(f"@{os.uname().nodename}")
        and one["key"].startswith("SHA256:")
        and one["from"]
    )
    assert {row["protect"] for row in answer["ports"]} and {
        row["host"] for row in answer["versions"]["hosts"]
    } == set(by_host)
    folder, log = "~/tfdeploy/canary/runs/canary-live/hosts", "~/tfdeploy/.audit/*/log.jsonl"
    on_host(
        operator.lab,
        "n3",
        f"cp -p {folder}/n3/part.json {folder}/n3/env.json; touch {folder}/../strange",
    )
    left = operator.json("audit", answer["run"], exit_code=1)
    assert {(row["host"], row["kind"]) for row in left["left"]} == {
        ("n3", "secret"),
        ("n3", "foreign"),
    }
    assert {row["host"] for row in left["secrets"] if not row["forgotten"]} == {"n3"}
    on_host(operator.lab, "n3", f"rm {folder}/n3/env.json {folder}/../strange")
    on_host(operator.lab, "n2", f"for log in {log}; do printf 'torn by a power cut' >> $log; done")
    torn = operator.json("audit", answer["run"])
    assert (
        torn["ok"]
        and [row["host"] for row in torn["faults"]] == ["n2"]
        and torn["entries"] == answer["entries"]
    )


@pytest.mark.long
def test_a_host_that_was_off_is_named_until_its_secrets_are_gone(operator: Tfdeploy) -> None:
    lab, run = operator.lab, "canary-off"
    operator.run("launch", "--detach", "--name", run, exit_code=0)
    lab.kill("n3")
    operator.run("stop", run, exit_code=4)
    away = operator.json("audit", run, exit_code=4)
    assert [row["host"] for row in away["errors"]] == ["n3"] and not away["ok"]
    gone = {(row["host"], row["forgotten"]) for row in away["secrets"]}
    assert gone == {("n1", True), ("n2", True), ("n3", None)}
    lab.boot("n3")
    back = operator.json("audit", run, exit_code=1)
    assert {(row["host"], row["kind"]) for row in back["left"]} == {("n3", "secret")}
    assert {row["host"] for row in back["secrets"] if not row["forgotten"]} == {"n3"}
    assert "something is left" in operator.run("audit", run, exit_code=1).stdout
    operator.run("stop", run, exit_code=0)
    assert (
        operator.json("audit", run)["left"] == []
        and find_leaks(operator, WANTED, "~/tfdeploy") == {}
    )


@pytest.mark.long
def test_secrets_of_a_rebooted_host_go_with_the_next_run_of_the_job(operator: Tfdeploy) -> None:
    operator.run("launch", "--detach", "--name", "canary-old", exit_code=0)
    for host in operator.lab.hosts:
        operator.lab.kill(host)
    for host in operator.lab.hosts:
        operator.lab.boot(host)
    assert set(find_leaks(operator, WANTED, "~/tfdeploy")) == set(operator.lab.hosts)
    operator.run("launch", "--detach", "--name", "canary-new", exit_code=0)
    assert operator.json("audit", "canary-old")["left"] == []
    operator.run("stop", "canary-new", exit_code=0)
    assert find_leaks(operator, WANTED, "~/tfdeploy") == {}


@pytest.mark.soak
def test_a_canary_survives_no_kill_of_its_launch(operator: Tfdeploy, watcher: list[str]) -> None:
    kills(operator, MANY_KILLS, seed=2)
    assert watcher == []
