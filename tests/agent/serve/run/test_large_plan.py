"""Test a plan for a thousand hosts. `make_plan` makes the plan, and one host prepares the run by
real verbs, called through the frames of the real protocol.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import NewClient, NewCluster
from tfdeploy.agent import frames, layout, wire
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan, plan_to_json, without_ssh_settings
from tfdeploy.model.plan_files import plan_from_file, plan_to_file, read_untrusted_plan
from tfdeploy.planning.host_parts import host_parts, shared_part
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

HOSTS, RUN, JOB, RELEASE = 1000, "large-1", "large", "c0ffee"
TELL = (
    "sh",
    "-c",
    'printf "%s\\n%s" "$TF_CONFIG" "$1" > told.$TFDEPLOY_TASK_ROLE; exec sleep 1000',
    "-",
    "{worker_hosts}",
)
KNOWN = {
    "user": "ml",
    "home": "/home/ml",
    "python": "/usr/bin/python3",
    "python_version": "3.11.2",
    "boot_id": "b",
    "clock": 0.0,
}
KNOWN |= {"cores": 2, "free_disk_bytes": 1 << 40, "free_inodes": 1_000_000, "rsync": "3.2.7"}


def large_plan(workdir: str, ports: tuple[int, ...]) -> Plan:
    hosts = [Host(name="n1", address="127.0.0.1", ports=(ports[0], ports[-1]))]
    # All addresses of loopback share the ports of this machine. So these ports must not be in the
    # ranges of tests/support/ports.py.
    for number in range(2, HOSTS + 1):
        hosts.append(
            Host(
                name=f"n{number}",
                address=f"127.1.{number // 250}.{number % 250 + 1}",
                ports=(2 * number + 20000, 2 * number + 20001),
            )
        )
    facts = {
        host.name: HostFacts(
            host=host.name,
            hostname=host.name,
            workdir=workdir,
            tensorflow="2.21.0",
            # With a proxy, the variable no_proxy of each task lists the addresses of all hosts.
            proxies=("http_proxy",),
            free_ports=ports if host.name == "n1" else host.ports,
            **KNOWN,  # type: ignore[arg-type]
        )
        for host in hosts
    }
    job = Job(name=JOB, mode="async", command=TELL, code="/code", flags="none", ready_after_s=0.05)
    inventory = Inventory(
        tuple(hosts), {"ps": ("n1",), "worker": tuple(host.name for host in hosts)}
    )
    known: dict[str, Any] = {
        "release": RELEASE,
        "sources": {},
        "run": RUN,
        "now": 1.0,
        "operator": "me@here",
    }
    return make_plan(inventory, job, facts, options=Options(), **known)


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def show(**sizes: float) -> None:
    print(" ".join(f"{name}={size:.3g}" for name, size in sizes.items()))


def test_a_thousand_hosts_are_prepared_by_the_real_verbs(
    serve: NewClient, hosts: NewCluster, tmp_path: Path
) -> None:
    host_n1 = hosts("n1")
    plan = large_plan(str(tmp_path), tuple(sorted(host_n1.free_ports(3))))
    release = Path(layout.release_dir(str(tmp_path), JOB, RELEASE))
    release.mkdir(parents=True)
    release_store.save_manifest(f"{release}.json", [])
    shared = json.dumps(
        {"plan": plan_to_file(without_ssh_settings(plan)), "part": shared_part(plan)}
    ).encode()
    part = wire.to_wire(host_parts(plan, {})["n1"])
    client, which = serve(), {"job": JOB, "run": RUN}
    before = peak_mib(client.process.pid)
    own = json.dumps({"part": part, "secrets": {}, "certs": host_n1.certs["n1"]}).encode()
    blob = frames.compress(own) + frames.compress(shared)
    assert client.call("run.prepare", blob, **which)["value"] == {"prepared": True}
    try:
        folder = Path(layout.run_dir(str(tmp_path), JOB, RUN))
        files = {
            name: (folder / name).stat().st_size / 2**20
            for name in ("plan.json", "hosts/n1/part.json")
        }
        whole = len(json.dumps(plan_to_json(plan))) / 2**20
        show(
            whole_mib=whole,
            text_mib=len(shared) / 2**20,
            blob_kib=len(blob) / 2**10,
            own_kib=len(own) / 2**10,
        )
        show(**files, serve_mib_before=before, serve_mib_after=peak_mib(client.process.pid))
        assert whole > 60 and sum(files.values()) < 2 and len(blob) < 1 << 18 and len(own) < 1 << 16
        item, packed = client.frame(client.ask("run.plan", **which))
        assert item["item"] == {} and len(packed) < 1 << 18
        assert plan_from_file(frames.decompress(packed)) == without_ssh_settings(plan)
        assert len(read_untrusted_plan(frames.decompress(packed), RUN, JOB, {}).tasks) == HOSTS + 1
        assert client.call("run.start", **which)["value"] == {}
        for role in ("ps", "worker"):
            told = folder / "cwd" / f"told.{role}"
            task = next(task for task in plan.tasks if task.role == role)
            host_n1.wait_until(
                lambda told=told, task=task: (
                    told.exists() and told.read_text().endswith(task.argv[-1])
                )
            )
            assert told.read_text() == f"{task.env['TF_CONFIG']}\n{task.argv[-1]}"
        assert (
            client.call("run.status", **which)["value"]["live"]
            and client.call("runs")["value"][0]["run"] == RUN
        )
    finally:
        assert (
            client.call("run.abort", reason="over", purge=True, **which)["value"]["survivors"] == []
        )


def test_what_is_not_whole_is_refused(serve: NewClient) -> None:
    own, shared = (
        frames.compress(b'{"part":{"run":"r","job":"large"}}'),
        frames.compress(b'{"plan":{},"part":{}}'),
    )
    halves = (
        b"x",
        own[:-3],
        own,
        own + b"x",
        own + shared[:-3],
        own + frames.compress(b"[]"),
        own + frames.compress(b"{}"),
    )
    for blob in (
        *halves,
        frames.compress(b"[]") + shared,
        frames.compress(b"{}") + shared,
        own + shared,
    ):
        assert serve().call("run.prepare", blob, run="r", job=JOB)["error"]["code"] == "bad_part"


@pytest.mark.parametrize("size", [1 << 20, 3 << 20])
def test_long_arguments_and_values_travel_packed(serve: NewClient, size: int) -> None:
    line = "from tfdeploy.agent.serve.run.status import VERBS; VERBS['runs'] = "
    client = serve(line + "lambda call: {'said': call.args['text'], 'blob': len(call.blob)}")
    assert client.call("runs", text="x" * size)["value"] == {"said": "x" * size, "blob": 0}
