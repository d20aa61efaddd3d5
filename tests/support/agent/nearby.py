"""Simulate hosts as folders of this machine. The sessions with these hosts call the agent's verbs
(requests) directly, without SSH.

Everything except SSH is real, and a launch takes half a second. For each verb and host, a test can
choose that the answer is slow, lost or late.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.ports import free_ports
from support.stopwatch import Stopwatch
from tfdeploy.agent import frames, layout
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.run import find, folder, task_processes
from tfdeploy.agent.serve import server
from tfdeploy.errors import AgentError, HostUnreachable, TfdeployError
from tfdeploy.model.answers.failures import format_advice
from tfdeploy.model.answers.hosts import Hello
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.text.typed import StreamingVerb, Verb
from tfdeploy.transport.agent.frames import Frame
from tfdeploy.transport.agent.stream import read_field

# The type of a function that a fleet calls in place of a verb. Its arguments are the host, the verb
# and a function that calls the real verb. The function returns the answer.
Around = Callable[[str, str, Callable[[], Any]], Any]


def answer(host: str, verb: str, do: Callable[[], Any]) -> Any:
    """Call the real verb and return its answer, as a healthy host does."""
    return do()


def _read_value(value: Any, cls: type[Any], verb: str, host: str) -> Any:
    """Convert an answer as a real channel does. Raises BadAnswer."""
    return read_field(Frame({"value": value}, b"", 0), "value", cls, verb, host)


class NearChannel:
    clock_skew_s = 0.0
    noise = ""

    def __init__(self, host: Host, context: SessionContext, fleet: NearFleet) -> None:
        self._host, self._context, self._fleet = host, context, fleet
        self.hello = _read_value(server.session_facts(context), Hello, "hello", host.name)

    def call(
        self,
        verb: Verb[Any],
        args: dict[str, Any] | None = None,
        *,
        blob: bytes = b"",
        timeout_s: float = 60.0,
    ) -> Any:
        fence = self._fleet.fences.get(self._host.name, {}).get((args or {}).get("job", ""))
        header, blob = _travelled(
            {"args": {**(args or {}), **({} if fence is None else {"fence": fence})}}, blob
        )
        self._fleet.asked.append((self._host.name, verb.name))

        def do() -> Any:
            return server.find_verb(verb.name)(Call(self._context, header["args"], blob))

        done: deque[Any] = deque()

        def work() -> None:
            try:
                done.append(self._fleet.around(self._host.name, verb.name, do))
            except (VerbError, TfdeployError) as error:
                done.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(min(timeout_s, self._fleet.patience_s))
        if not done:
            raise HostUnreachable(
                f"no answer to {verb.name} within {timeout_s:g} s", where=self._host.name
            )
        if isinstance(done[0], VerbError):
            error = done[0]
            raise AgentError(
                error.what,
                code=error.code,
                details=error.details,
                where=self._host.name,
                next=format_advice(self._host.name, error.advice, error.details),
            )
        if isinstance(done[0], TfdeployError):
            raise done[0]
        return _read_value(done[0], verb.value, verb.name, self._host.name)

    def stream(
        self,
        flow: StreamingVerb[Any, Any],
        args: dict[str, Any] | None = None,
        *,
        silence_s: float | None = None,
    ) -> NearStream:
        return NearStream(self._host.name, self._context, flow, args or {})


class NearStream:
    """A stream whose items are all available at once, for verbs that end by themselves."""

    def __init__(
        self,
        host: str,
        context: SessionContext,
        flow: StreamingVerb[Any, Any],
        args: dict[str, Any],
    ) -> None:
        self.value: Any = None
        self._host, self._flow = host, flow
        self._items: list[tuple[dict[str, Any], bytes]] = []
        self._ended = server.find_verb(flow.name)(
            Call(context, args, b"", lambda *item: self._items.append(item))
        )

    def __iter__(self) -> Iterator[tuple[Any, bytes]]:
        for item, blob in self._items:
            yield _read_value(item, self._flow.item, self._flow.name, self._host), blob
        self.value = _read_value(self._ended, self._flow.value, self._flow.name, self._host)

    def close(self) -> None:
        pass


def _travelled(header: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
    """Encode the frame and decode it again, and return it as its receiver would see it."""
    frame = frames.read_frame(io.BytesIO(frames.encode_frame(header, blob)))
    assert frame is not None
    return frame


class NearSession:
    target = None
    alive = True

    def __init__(self, host: Host, context: SessionContext, fleet: NearFleet) -> None:
        self.host, self._context, self._fleet = host, context, fleet
        self.fences = fleet.fences.setdefault(host.name, {})

    def agent(self, on_missing: Callable[[], object] = lambda: None) -> Any:
        return NearChannel(self.host, self._context, self._fleet)


class NearFleet:
    """A fleet of simulated hosts.

    The fleet calls the verbs of a launch through the function `around`, which may delay or drop the
    answer. `asked` lists (host, verb) of all calls so far. `patience_s` limits how long a caller
    waits for an answer.
    """

    def __init__(self, root: Path, agent_dir: str, *names: str) -> None:
        self.around: Around = answer
        self.asked: list[tuple[str, str]] = []
        self.patience_s = 60.0
        self.fences: dict[str, dict[str, int]] = {}
        self.contexts = {
            name: SessionContext(str(root / name / "tfdeploy"), agent_dir) for name in names
        }
        rows = []
        for name, context in self.contexts.items():
            os.makedirs(context.workdir)
            low, *_, high = sorted(free_ports(20))
            row = Host(
                name=name,
                address="127.0.0.1",
                port=22,
                user="me",
                workdir=context.workdir,
                ports=(low, high),
                gpus="none",
            )
            rows.append(replace(row, python=sys.executable))
        self.inventory = Inventory(tuple(rows), {"ps": names[:1], "worker": names[1:]})

    def each(
        self, hosts: tuple[Host, ...], action: Any, *, on_done: Any = None, waits: bool = False
    ) -> dict[str, Any]:
        def one(host: Host) -> Any:
            try:
                return action(NearSession(host, self.contexts[host.name], self))
            except TfdeployError as error:
                return error

        with ThreadPoolExecutor(max(1, len(hosts))) as pool:
            return dict(zip((host.name for host in hosts), pool.map(one, hosts), strict=True))

    def connect(self, hosts: tuple[Host, ...]) -> dict[str, Any]:
        return self.each(hosts, lambda session: session)

    def connected(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        return hosts

    def close(self) -> None:
        for context in self.contexts.values():
            for let_go in list(context.closing_functions.values()):
                let_go()

    def call(self, host: str, verb: str, **args: Any) -> Any:
        """Call a verb on a host as another operator's tfdeploy would. The call does not pass
        through the test's function `around`.
        """
        return server.find_verb(verb)(Call(self.contexts[host], args))

    def paths(self, host: str, job: str, run: str) -> folder.RunPaths:
        return folder.RunPaths(layout.host_dir(self.contexts[host].workdir, job, run, host))

    def alive(self, run: str, job: str) -> dict[str, list[int]]:
        """Return {host: pids of the processes that are marked as processes of this run}. Hosts
        without such a process are left out.
        """
        table = processes.all_processes()
        pids_by_host = {
            name: sorted(
                processes.find_by_environment(
                    task_processes.environment_markers(self.paths(name, job, run)), table
                )
            )
            for name in self.contexts
        }
        return {name: pids for name, pids in pids_by_host.items() if pids}

    def end_all(self) -> None:
        for context in self.contexts.values():
            for job in find.jobs_with_runs(context.workdir):
                for run in find.run_names(context.workdir, job):
                    try:
                        server.find_verb("run.stop")(
                            Call(context, {"run": run, "job": job, "grace_s": 0.0})
                        )
                        server.find_verb("run.abort")(
                            Call(context, {"run": run, "job": job, "purge": True})
                        )
                    except VerbError:
                        pass
        self.close()


def held_until(reached: Callable[[], Any], within_s: float = 30.0) -> None:
    """Wait until `reached` is true. To delay a host's answer, a test assigns a function that calls
    `held_until` to NearFleet.around.
    """
    watch = Stopwatch()
    while not reached():
        assert watch.seconds < within_s, "it never came"
        time.sleep(0.01)
