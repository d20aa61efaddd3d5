"""Simulate several hosts on one machine. Each host has a workdir, ports and a certificate, and runs
the agent's real verbs (requests), minders (one process per host and run) and supervisors (one
process per task).
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from support.agent.certificates import make_certs
from support.agent.client import Client
from support.ports import free_ports
from support.waiting import wait_for
from tfdeploy.agent import layout, wire
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.run import folder as run_folder
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.agent.serve.run import ending as run_ending
from tfdeploy.agent.serve.run import follow as run_follow
from tfdeploy.agent.serve.run import launch as run_launch
from tfdeploy.agent.serve.run import prepare as run_prepare

JOB, RELEASE = "digits", "c0ffee"
WITHIN_S = 20.0
# {task: (host, command)}, such as {"worker:0": ("n1", ["sh", "-c", "..."])}. The tuple may have a
# third value: a dict of further fields of TaskSpec. The run succeeds if worker:0 does.
Tasks = dict[str, Any]
_VERBS = {**run_ending.VERBS, **run_follow.VERBS, **run_launch.VERBS, **run_prepare.VERBS}


def wait_until(reached: Callable[[], Any], within_s: float = WITHIN_S, what: str = "") -> Any:
    """Return the first true value of `reached`, which is called every 10 ms. The interval is short
    because some states last only a tenth of a second.
    """
    return wait_for(reached, within_s, what or str(reached), poll_s=0.01)


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]


def entry_of(folder: Path, path: Path) -> release_store.ManifestEntry:
    """Return the manifest entry that release.commit writes for this path."""
    name = str(path.relative_to(folder))
    if path.is_symlink():
        return release_store.ManifestEntry(
            path=name, kind="link", size=0, sha256="", target=os.readlink(path)
        )
    about = path.stat()
    kind = "exec" if about.st_mode & 0o100 else "file"
    return release_store.ManifestEntry(
        path=name,
        kind=kind,
        size=about.st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        target="",
        mtime_ns=about.st_mtime_ns,
    )


class HostUnderTest:
    """One simulated host: a workdir that contains a release (a synced copy of the code). The test's
    own process calls the verbs of `agent serve`.
    """

    def __init__(self, name: str, root: Path, agent_dir: str) -> None:
        self.name = name
        self.context = SessionContext(str(root / name), agent_dir)
        self.mesh_port = 0
        self.release = Path(layout.release_dir(self.context.workdir, JOB, RELEASE))
        self.release.mkdir(parents=True)

    def call(self, verb: str, **args: Any) -> Any:
        """Call a verb about a run, and return its answer. Raises whatever the verb raises."""
        return _VERBS[verb](Call(self.context, args))

    def commit_release(self) -> None:
        """Write a manifest of the release's current content, as if a sync had sent this content."""
        if self.release.is_dir():
            release_store.save_manifest(
                str(self.release) + ".json",
                [entry_of(self.release, path) for path in files_of(self.release)],
            )

    def paths(self, run: str) -> run_folder.RunPaths:
        """Return the run's folder on this host."""
        return run_folder.RunPaths(layout.host_dir(self.context.workdir, JOB, run, self.name))


class Cluster:
    """Simulated hosts with real processes. Each host has a workdir, a certificate, and a port for
    the mesh, through which the minders of a run exchange messages.

    The methods start runs of one job through the agent's own verbs, and read the files of a run.
    """

    job = JOB
    wait_until = staticmethod(wait_until)
    free_ports = staticmethod(free_ports)

    def __init__(self, root: Path, agent_dir: str, names: list[str]) -> None:
        """Create the hosts. `root` is the folder of their workdirs. `agent_dir` is the folder with
        the code of the agent that starts the processes.
        """
        self.hosts = {name: HostUnderTest(name, root, agent_dir) for name in names}
        self.certs = make_certs(names)
        self.runs: list[str] = []
        ports = free_ports(len(names))
        for host in self.hosts.values():
            host.mesh_port = ports.pop()

    def write(self, name: str, text: str) -> None:
        """Write a file of the code to the release of every host."""
        for host in self.hosts.values():
            (host.release / name).parent.mkdir(parents=True, exist_ok=True)
            (host.release / name).write_text(text)

    def parts(self, run: str, tasks: Tasks, **fields: Any) -> dict[str, dict[str, Any]]:
        """Return {host: the part of the plan that a launch sends to this host}.

        `fields` are further fields of HostPart. `recovery` is also accepted: {task: (on_death,
        gang)}, which are two fields of the task's Peer.
        """
        for host in self.hosts.values():
            host.commit_release()
        mesh = [
            wire.MeshHost(name, "127.0.0.1", host.mesh_port) for name, host in self.hosts.items()
        ]
        specs: dict[str, list[wire.TaskSpec]] = {name: [] for name in self.hosts}
        peers = []
        recovery = fields.pop("recovery", {})
        for task, (host, argv, *more) in tasks.items():
            role, index = task.split(":")
            given = dict(
                {"ready_after_s": 0.05, "ready_timeout_s": 60.0, "env": {}},
                **(more[0] if more else {}),
            )
            specs[host].append(
                wire.TaskSpec(
                    task=task,
                    role=role,
                    index=int(index),
                    argv=argv,
                    deciding=task == "worker:0",
                    **given,
                )
            )
            on_death, gang = recovery.get(task, ("", False))
            peers.append(
                wire.Peer(
                    task=task,
                    role=role,
                    host=host,
                    deciding=task == "worker:0",
                    on_death=on_death,
                    gang=gang,
                )
            )
        quick = dict({"finish_grace_s": 0.5, "stop_grace_s": 1.0, "sample_every_s": 0.0}, **fields)
        digest = quick.pop("plan_digest", "d1")
        return {
            name: wire.to_wire(
                wire.HostPart(
                    run=run,
                    job=JOB,
                    mode="async",
                    host=name,
                    plan_digest=digest,
                    release=RELEASE,
                    tasks=specs[name],
                    peers=peers,
                    mesh=mesh,
                    **quick,
                )
            )
            for name in self.hosts
        }

    def prepare(
        self, run: str, tasks: Tasks, secrets: dict[str, str] | None = None, **fields: Any
    ) -> None:
        """Prepare the run on all hosts. No task starts."""
        self.runs.append(run)
        plan = {"run": run, "operator": "me@here", "created": 1.0}
        for name, part in self.parts(run, tasks, **fields).items():
            answer = self.hosts[name].call(
                "run.prepare", part=part, plan=plan, secrets=secrets or {}, certs=self.certs[name]
            )
            assert answer == {"prepared": True}

    def each(self, verb: str, run: str, but: str = "", **args: Any) -> dict[str, Any]:
        """Call the verb on all hosts, except on the host named `but`. Return {host: answer}."""
        return {
            name: host.call(verb, run=run, job=JOB, **args)
            for name, host in self.hosts.items()
            if name != but
        }

    def launch(self, run: str, tasks: Tasks, **fields: Any) -> None:
        """Prepare, start and commit the run."""
        self.prepare(run, tasks, **fields)
        self.each("run.start", run)
        self.each("run.commit", run)

    def state(self, run: str, host: str) -> wire.HostRunState:
        """Return the host's state.json."""
        return self.hosts[host].paths(run).state()

    def status(self, run: str, task: str) -> wire.TaskStatus:
        """Return the task's status.json from the host that runs the task."""
        parts = [host.paths(run) for host in self.hosts.values()]
        return next(p.status(task) for p in parts if task in [spec.task for spec in p.part().tasks])

    def wait_state(self, run: str, task: str, *states: str) -> wire.TaskStatus:
        """Wait until the task is in one of the states. Return its status."""
        wait_until(lambda: self.status(run, task).state in states, what=f"{task} in {states}")
        return self.status(run, task)

    def wait_ended(self, run: str, *hosts: str) -> dict[str, wire.HostRunState]:
        """Wait until the run has ended on each host. Return {host: its state}."""
        for name in hosts or self.hosts:
            wait_until(
                lambda name=name: self.state(run, name).phase == "ended",
                what=f"{name} ended: {self.state(run, name)}",
            )
        return {name: self.state(run, name) for name in hosts or self.hosts}

    def log(self, run: str, task: str) -> str:
        """Return all output of the task."""
        logs = [Path(host.paths(run).task_dir(task)) / "out.log" for host in self.hosts.values()]
        return "".join(path.read_text() for path in logs if path.exists())

    def alive(self, run: str) -> list[int]:
        """Return the pids of all processes that belong to this run, on any of these hosts."""
        table = processes.all_processes()
        return [
            pid
            for host in self.hosts.values()
            for pid in processes.find_by_environment(
                task_processes.environment_markers(host.paths(run)), table
            )
        ]

    def clean(self) -> None:
        """Kill every process of every run. The pids are read from the files of the runs."""
        for run in self.runs:
            for host in self.hosts.values():
                self._stop(run, host)
        for run in self.runs:
            for host in self.hosts.values():
                who = task_processes.read_minder(host.paths(run))
                if who is not None:
                    processes.send_signal(who, signal.SIGKILL)
                    wait_until(lambda who=who: not processes.is_alive(who))
            assert wait_until(lambda run=run: not self.alive(run))

    def _stop(self, run: str, host: HostUnderTest) -> None:
        try:
            if os.path.isdir(host.paths(run).host_dir):
                host.call("run.stop", run=run, job=JOB, grace_s=0.0)
        except layout.HostPartMissing:
            pass  # The run never began, and its minder has just removed its folder.
        except VerbError as error:
            if error.code != "unknown_run":
                raise


class NewCluster(Protocol):
    """The type of the fixture `hosts`: hosts("n1", "n2") returns a cluster of two hosts."""

    def __call__(self, *names: str) -> Cluster: ...


class NewClient(Protocol):
    """The type of the fixture `serve`: each call opens a new session with one host's agent."""

    def __call__(self, before: str = "", at: Path = ..., clone: str = "", **env: str) -> Client: ...
