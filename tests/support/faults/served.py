"""Run hosts as real agents on this machine, connected by pipes instead of SSH.

Some of them lie: see `Lie`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.agent.unpacked import write_agent_files
from support.faults.hostile import encode_frame
from tfdeploy.agent import frames
from tfdeploy.errors import HostUnreachable
from tfdeploy.model.answers.hosts import Hello
from tfdeploy.model.inventory import Host
from tfdeploy.text.typed import convert_untrusted
from tfdeploy.transport.agent.channel import FramedChannel
from tfdeploy.transport.agent.frames import Frames
from tfdeploy.transport.fleet import SshFleet

Item = dict[str, Any]
# The value in Lie.answers for a verb that the host never answers.
SILENT: list[Item] = []


@dataclass(frozen=True)
class Lie:
    """The dishonest answers of a host.

    `answers` is {verb: frames}: the host sends these frames and does not pass the request to the
    agent. `items(verb, item)` returns the replacement for an item that the agent sends, or None to
    drop the item. `reports` is {verb: made-up items}; the host sends one of these every `pause_s`
    seconds.
    """

    answers: dict[str, list[Item]] = field(default_factory=dict)
    items: Callable[[str, Item], Item | None] = lambda verb, item: item
    reports: dict[str, Callable[[], Iterator[Item]]] = field(default_factory=dict)
    pause_s: float = 0.05


HONEST = Lie()


class ServedChannel(FramedChannel):
    def __init__(
        self,
        host: str,
        process: subprocess.Popen[bytes],
        fences: dict[str, int],
        lie: Callable[[], Lie],
    ) -> None:
        nowhere: Any = SimpleNamespace(close=lambda: None, out_window_size=0)
        super().__init__(nowhere, host, fences, {}, 0)
        self._reader: Any = SimpleNamespace(wake=lambda: None)
        self._frames = Frames()
        self._process, self._lie = process, lie
        self._verbs: dict[int, str] = {}
        self._order, self._writing, self._ended = (
            threading.Lock(),
            threading.Lock(),
            threading.Event(),
        )
        assert process.stdout is not None
        process.stdout.readline()
        frame = frames.read_frame(process.stdout)
        assert frame is not None
        self.hello = convert_untrusted(frame[0]["hello"], Hello)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def shorten_timeouts(self) -> None:
        return None

    def close(self) -> None:
        self._ended.set()
        super().close()
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        lie, verb, number = self._lie(), header.get("verb", ""), header.get("id", 0)
        self._verbs[number] = verb
        for said in lie.answers.get(verb, ()):
            self._hear({**said, "id": number}, b"")
        if verb in lie.answers:
            return
        if verb in lie.reports:
            threading.Thread(target=self._report, args=(number, lie, verb), daemon=True).start()
        assert self._process.stdin is not None
        try:
            with self._writing:
                self._process.stdin.write(frames.encode_frame(header, blob))
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise HostUnreachable("the connection ended", where=self._host) from error

    def _report(self, number: int, lie: Lie, verb: str) -> None:
        for item in lie.reports[verb]():
            if self._ended.wait(lie.pause_s) or number not in self._answers:
                return
            self._hear({"id": number, "item": item}, b"")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError, frames.WireError):
            while (frame := frames.read_frame(self._process.stdout)) is not None:
                header, blob = frame
                if isinstance(item := header.get("item"), dict):
                    said = self._lie().items(self._verbs.get(header["id"], ""), item)
                    if said is None:
                        continue
                    header = {**header, "item": said}
                self._hear(header, blob)
        self._fail_all(HostUnreachable("the connection ended", where=self._host))

    def _hear(self, header: Item, blob: bytes) -> None:
        with self._order:
            self._frames.feed(encode_frame(header, blob))
            for each in self._frames.complete_frames():
                self._dispatch(each)


class ServedFleet(SshFleet):
    """A fleet (the sessions with all hosts) whose agents run on this machine. Between two verbs, a
    test may change the lies of a host in `lies`.
    """

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        super().__init__()
        self.lies: dict[str, Lie] = {}
        self.folder = folder
        self.hosts = tuple(
            Host(name=name, address="127.0.0.1", ports=(21000, 21999)) for name in names
        )
        write_agent_files(folder / "agent")
        self._channels: dict[str, ServedChannel] = {}
        self._all: list[ServedChannel] = []
        self._fences: dict[str, dict[str, int]] = {name: {} for name in names}
        self._starting = threading.Lock()

    def workdir(self, host: str) -> Path:
        return self.folder / host

    def session(self, host: Host, *_: Any) -> Any:
        about: dict[str, Any] = {
            "host": host,
            "target": host.name,
            "alive": True,
        }
        return SimpleNamespace(
            **about,
            fences=self._fences[host.name],
            agent=lambda *_: self._agent(host.name),
            close=lambda: None,
            idle=False,
        )

    def connected(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        return hosts

    def _agent(self, name: str) -> ServedChannel:
        with self._starting:
            channel = self._channels.get(name)
            if channel is None or channel.is_lost:
                channel = self._channels[name] = self._start(name)
        return channel

    def _start(self, name: str) -> ServedChannel:
        argv = ["serve", "--workdir", str(self.workdir(name)), "--host", name]
        command = [sys.executable, "-S", "-E", str(self.folder / "agent"), *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._all.append(
            ServedChannel(name, process, self._fences[name], lambda: self.lies.get(name, HONEST))
        )
        return self._all[-1]

    def end(self) -> None:
        self._channels.clear()
        while self._all:
            self._all.pop().close()
