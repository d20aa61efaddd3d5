"""Test which connections the nftables table of a run accepts. The tests run the real nft in network
namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.needs import require
from support.stopwatch import DEADLINE_S
from tfdeploy.agent import wire
from tfdeploy.agent.host.network import nft_program
from tfdeploy.agent.minder import firewall
from tfdeploy.agent.run.folder import RunPaths

TESTS = Path(__file__).parents[2]


def scene(folder: Path, name: str) -> Any:
    """Run a function of support/agent/firewalled.py in a new network namespace, and return its
    result.
    """
    require("nftables", "links", "other accounts")
    words = [
        "unshare",
        "--net",
        sys.executable,
        "-m",
        "support.agent.firewalled",
        str(folder),
        name,
    ]
    env = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=DEADLINE_S, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_closed_where() -> None:
    """The table closes all ports of the run on this host. It also blocks connections from this host
    to the ports that the run has on other hosts, at all addresses of these hosts. If both hosts
    have the same address, such as that of a container bridge, the other host's ports stay open at
    this address.
    """
    mesh = [
        wire.MeshHost("n1", "10.0.0.1", 2299, ["10.0.0.1", "172.17.0.1"]),
        wire.MeshHost("n2", "10.0.0.2", 2298, ["10.0.0.2", "172.17.0.1", "fd00::2"]),
    ]
    tasks = [
        wire.TaskSpec(task="ps:0", role="ps", index=0, argv=["x"], env={}, port=2222),
        wire.TaskSpec(task="worker:1", role="worker", index=1, argv=["x"], env={}, own_port=2230),
        wire.TaskSpec(task="evaluator:0", role="evaluator", index=0, argv=["x"], env={}),
    ]
    peers = [
        wire.Peer(task="ps:0", role="ps", host="n1", address="10.0.0.1:2222"),
        wire.Peer(task="worker:0", role="worker", host="n2", address="[fd00::2]:2223"),
        wire.Peer(task="evaluator:0", role="evaluator", host="n2"),
    ]
    part = wire.HostPart(
        run="r",
        job="j",
        mode="async",
        host="n1",
        plan_digest="",
        release="",
        tasks=tasks,
        peers=peers,
        mesh=mesh,
    )
    part.allowed = ["10.0.0.1", "10.0.0.2"]
    closed = firewall.ports_to_close(RunPaths("/w/j/runs/r/hosts/n1"), part)
    assert closed.ports == (2222, 2230, 2299) and closed.user == os.geteuid()
    assert closed.allowed == ("10.0.0.1", "10.0.0.2")
    assert set(closed.elsewhere) == {
        (address, port) for address in ("10.0.0.2", "fd00::2") for port in (2223, 2298)
    }


def test_only_the_run_reaches_its_ports_and_it_reaches_all_of_them(tmp_path: Path) -> None:
    output = scene(tmp_path, "let_in")
    # Most values are numbers of accepted connections. "here" is this host, and "there" is the other
    # host of the run. The strangers try to open 10,000 connections, over IPv4 and IPv6. Another
    # user and root each try to open 5,000 connections to each of the two hosts. All attempts of the
    # run's hosts and of the run's user succeed.
    assert output == {
        "open before": 2,
        "hosts of the run": 200,
        "strangers": 0,
        "the run's user here": 100,
        "the run's user to there": 50,
        "another user here": 0,
        "another user to there": 0,
        "another user to other programs": 2,
        "root here": 0,
        "root to there": 0,
        "root to other programs": 2,
        "a container here": 0,
        "a container to there": 0,
        "a container to other programs": 2,
        "strangers to other programs": 2,
        "last packets that never came": 0,
        "strangers once it was made again": 0,
    }


def test_the_table_stands_until_the_last_of_the_run_is_gone_and_comes_back_when_removed(
    tmp_path: Path,
) -> None:
    assert scene(tmp_path, "life") == {
        "before the run": None,
        "stands while a supervisor lives": 1,
        "one table after a minder took over": 1,
        "stands after nft flush ruleset": 1,
        "gone with its nft": 0,
        "said": "the run's firewall table was removed, and has been created again",
        "stands again": 1,
        "said once": "",
        "gone with the last holder": True,
    }


def test_kill_9_of_all_of_the_run_leaves_no_table(tmp_path: Path) -> None:
    assert scene(tmp_path, "killed") == {
        "stands": 1,
        "stands after 1 of 2": 1,
        "gone after 2 of 2": True,
    }


def test_what_nft_refuses_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    assert scene(tmp_path, "refused") == {
        "said": "nft: Could not process rule: No such file or directory",
        "tables": 0,
    }


def test_why_a_host_can_make_no_table_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nft_program, "_PATHS", ("nft",))
    # The test pretends to be root, because for root the error gives no advice about sudo.
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nft_program.find_working_command(nft_program.start_checks()) == (
        None,
        "nft is not installed",
    )
    for output, code, why in (
        ("Error: unknown table option owner\nadd table x", 0, "nft: unknown table option owner"),
        (
            "netlink: Error: cache initialization failed: Operation not permitted",
            1,
            "nft: cache initialization failed: Operation not permitted",
        ),
        (
            "Error: Could not process rule: Operation not supported\n",
            0,
            "nft: Could not process rule: Operation not supported",
        ),
        (
            "interactive CLI not supported in this build",
            1,
            "nft: interactive CLI not supported in this build",
        ),
    ):
        program = tmp_path / "nft"
        program.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{output}'\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        assert nft_program.find_working_command(nft_program.start_checks()) == (None, why)


def test_an_nft_that_crashes_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nft can crash while another process adds or removes a table. A launch with `protect:
    firewall` once failed for this reason.
    """
    monkeypatch.setattr(nft_program, "_PATHS", ("nft",))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program, crashes = tmp_path / "nft", tmp_path / "crashes"
    program.write_text(
        f"#!/bin/sh\ncat >/dev/null\n[ -e {crashes} ] || exit 0\nrm {crashes}\nkill -SEGV $$\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    crashes.touch()
    assert nft_program.find_working_command(nft_program.start_checks()) == ([str(program)], "")
    program.write_text("#!/bin/sh\ncat >/dev/null\nkill -SEGV $$\n")
    assert nft_program.find_working_command(nft_program.start_checks()) == (
        None,
        "nft: killed by signal 11",
    )


def test_nft_itself_says_that_it_may_not(tmp_path: Path) -> None:
    """nft is run by an ordinary user, who may not change tables."""
    require("nftables", "other accounts")
    as_user = ["setpriv", "--reuid=4711", "--clear-groups", sys.executable, "-c"]
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    imports = "from tfdeploy.agent.host.network import nft_program as p"
    if subprocess.run([*as_user, imports], capture_output=True, env=env).returncode:
        pytest.skip("another account cannot run this Python, or cannot read this checkout")
    program = (
        imports + "; import sys; sys.stdout.write(str(p.find_working_command(p.start_checks())))"
    )
    said = subprocess.run(
        [*as_user, program], capture_output=True, text=True, check=True, env=env
    ).stdout
    assert said.startswith("(None, 'nft: ") and "Operation not permitted" in said
