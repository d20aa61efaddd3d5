"""Test data sets of which each worker gets a part, and data sets whose source is a folder on a
host.

The kernel's counters show how many bytes passed each link.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.files.odd_tree import MIB
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.host_commands import read_traffic_by_link
from support.lab.hosts import on_host
from support.lab.releases import job_file, list_host_folder, list_local_folder
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
PROGRAM = """
import os, sys
names = [name for _, _, found in os.walk(sys.argv[1], followlinks=True) for name in found]
part = [os.environ[f"TFDEPLOY_DATA_SHARDS_{what}"] for what in ("PART", "PARTS")]
print("HAS", *part, *sorted(names), flush=True)
"""
FILES, FILE_BYTES = 12, 400_000
MOST_TIMES = 1.05


@pytest.fixture(scope="module")
def lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("isolated", 4, rate="400mbit")


@pytest.fixture
def operator(lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(lab)


def shards(operator: Tfdeploy) -> Path:
    folder = operator.cwd / "shards"
    (folder / "sub").mkdir(parents=True)
    for number in range(FILES):
        (folder / "sub" / f"s{number:02}").write_bytes(os.urandom(FILE_BYTES))
    return folder


def job(operator: Tfdeploy, name: str, source: dict[str, str]) -> None:
    code = job_file(
        operator,
        name,
        mode="plain",
        data={"shards": source},
        command=["python", "train.py", "{data.shards}"],
    )
    (code / "train.py").write_text(PROGRAM)


def launch(operator: Tfdeploy, *args: str) -> tuple[dict[int, set[str]], dict[str, str]]:
    """Return {part: the names that its worker found}, and {host: the amount of data sent to it}."""
    stderr = operator.run("launch", "--wait", *args, exit_code=0).stderr
    matches = re.findall(r"HAS (\d+) (\d+) ?(.*)", stderr)
    assert {int(parts) for _, parts, _ in matches} == {len(matches)}, stderr
    return {int(part): set(names.split()) for part, _, names in matches}, dict(
        re.findall(r"\[(n\d)\] data shards (.*) sent", stderr)
    )


def from_operator(lab: Lab) -> int:
    """Return the number of bytes that have left the operator's machine."""
    return read_traffic_by_link(lab)["operator"]["from_bytes"]


def test_each_worker_has_its_part_and_other_workers_move_little(
    lab: Lab, operator: Tfdeploy
) -> None:
    source = shards(operator)
    names = {path.name for path in source.rglob("s*") if path.is_file()}
    job(operator, "split", {"path": "./shards", "split": "worker"})
    plan: dict[str, Any] = json.loads(
        operator.run("launch", "--dry-run", "--json", exit_code=0).stdout
    )
    assert [(part["host"], part["files"]) for part in plan["parts"]["shards"]] == [
        ("n2", 4),
        ("n3", 4),
        ("n4", 4),
    ]
    answer = json.loads(operator.run("sync", "--dry-run", "--json", exit_code=0).stdout)
    assert [(row["host"], row["bytes_sent"] // FILE_BYTES) for row in answer["hosts"]] == [
        ("n1", 0),
        ("n2", 4),
        ("n3", 4),
        ("n4", 4),
    ]
    assert {
        (feed["from"], feed["to"]) for each in answer["broadcasts"] for feed in each["feeds"]
    } == {("control", host) for host in ("n2", "n3", "n4")}
    before = from_operator(lab)
    parts, _ = launch(operator)
    sent = from_operator(lab) - before
    assert sum(map(len, parts.values())) == FILES and set.union(*parts.values()) == names
    assert {len(part) for part in parts.values()} == {4}
    assert sent <= MOST_TIMES * FILES * FILE_BYTES + MIB, (
        "the program, the agents and the rest of SSH are no MiB"
    )
    assert "shards" not in on_host(lab, "n1", "ls tfdeploy tfdeploy/*/data 2>/dev/null || true")

    fewer, sent_to = launch(operator, "--workers", "2")
    assert set.union(*fewer.values()) == names and {len(part) for part in fewer.values()} == {6}
    assert (fewer[0] > parts[0], fewer[1] > parts[1]) == (True, True)
    # n2 and n3 receive the part that n4 had, each a half of it. n4 sends them these files.
    assert sent_to == {"n2": "800 kB", "n3": "800 kB"}

    more, sent_to = launch(operator, "--workers", "4")
    assert set.union(*more.values()) == names and {len(part) for part in more.values()} == {3}
    assert len(sent_to) <= 2
    remote_listing = list_host_folder(operator, "n2", "split/data/shards")
    assert {path.rpartition("/")[2] for path in remote_listing} - {"sub"} == more[0] | more[1]


def test_data_of_a_host_goes_to_the_others_and_not_through_the_operator(
    lab: Lab, operator: Tfdeploy
) -> None:
    on_host(
        lab,
        "n3",
        f"mkdir -p big/sub; head -c {24 * MIB} /dev/urandom > big/sub/shard; ln big/sub/shard "
        "big/same; ln -s sub big/l",
    )
    job(operator, "lent", {"from": "n3:/home/lab/big"})
    stdout = operator.run("sync", "--dry-run", exit_code=0).stdout
    assert "data shards: 25 MB to 3 hosts\n  n3 > n1 > n2 > n4\n" in stdout
    before = from_operator(lab)
    answer = json.loads(operator.run("sync", "--json", exit_code=0).stdout)
    assert from_operator(lab) - before < 2 * MIB
    assert {row["host"]: row["bytes_sent"] > 24 * MIB for row in answer["hosts"]} == {
        "n1": True,
        "n2": True,
        "n3": False,
        "n4": True,
    }
    sums = {
        on_host(lab, host, "sha256sum < tfdeploy/lent/data/shards/sub/shard") for host in lab.hosts
    }
    assert sums == {on_host(lab, "n3", "sha256sum < big/sub/shard")}
    again = json.loads(operator.run("sync", "--json", exit_code=0).stdout)
    assert [row["bytes_sent"] for row in again["hosts"]] == [0] * len(lab.hosts)


@pytest.mark.fault("66 data of a host that is not there")
def test_data_that_a_host_does_not_have_is_refused(operator: Tfdeploy) -> None:
    job(operator, "none", {"from": "n3:/home/lab/nowhere"})
    for verb in (["sync"], ["launch", "--detach"]):
        stderr = operator.run(*verb, exit_code=3).stderr
        assert (
            'data of n3, /home/lab/nowhere: n3 says: "/home/lab/nowhere does not exist"' in stderr
        )
        assert "correct `from:`" in stderr
    job(operator, "none", {"from": "n9:/home/lab/nowhere"})
    assert "no host of the inventory" in operator.run("sync", exit_code=2).stderr


@pytest.mark.fault("66 a data set that cannot be split")
def test_too_few_files_or_no_workers_are_refused(operator: Tfdeploy) -> None:
    (operator.cwd / "few").mkdir()
    (operator.cwd / "few" / "one").write_text("1")
    job(operator, "few", {"path": "./few", "split": "worker"})
    for verb in (["sync"], ["launch", "--detach"], ["launch", "--dry-run"]):
        assert "has 1 file for 3 workers" in operator.run(*verb, exit_code=2).stderr
    assert "no workers" in operator.run("launch", "--mode", "local", exit_code=2).stderr
    assert (
        "is split among all workers: select all hosts"
        in operator.run("sync", "--limit", "n2", exit_code=2).stderr
    )


def test_rsync_sends_a_set_that_asks_for_it(lab: Lab, operator: Tfdeploy) -> None:
    source = shards(operator)
    job(operator, "old", {"path": "./shards", "via": "rsync"})
    operator.run("sync", exit_code=0)
    for host in lab.hosts:
        assert list_host_folder(operator, host, "old/data/shards") == list_local_folder(source)


# tfdeploy needs about ten seconds to detect a silent host.
@pytest.mark.long
def test_when_the_host_that_has_the_data_dies_the_others_say_so(
    lab: Lab, operator: Tfdeploy
) -> None:
    on_host(lab, "n4", f"mkdir -p far; head -c {64 * MIB} /dev/urandom > far/shard")
    job(operator, "gone", {"from": "n4:/home/lab/far"})
    sync = operator.start("sync", "--exclude", "n4", "--bwlimit", "4M")
    grows = "ls tfdeploy/gone/data/.shards.new 2>/dev/null || true"
    wait_for(lambda: "shard" in on_host(lab, "n1", grows), 60.0, "the data on its way")
    lab.kill("n4")
    code, output = wait_for_end(sync)
    assert (code, "the data comes from n4, which failed" in output) == (4, True), output
    lab.boot("n4")
    operator.run("sync", "--exclude", "n4", exit_code=0)
    sums = {
        on_host(lab, host, "sha256sum < tfdeploy/gone/data/shards/shard")
        for host in ("n1", "n2", "n3")
    }
    assert sums == {on_host(lab, "n4", "sha256sum < far/shard")}
