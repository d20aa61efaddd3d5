"""Start `agent serve` as a control machine does. Also write the folder of a run without starting
the run.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from tfdeploy.agent import frames, layout, wire
from tfdeploy.agent.host import boot_id

WITHIN_S = 60.0


class Client:
    """The control machine's end of the channel to an agent. It sends requests, and sorts the
    replies by the id of the request.
    """

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.greeting = self.stdout.readline()
        frame = frames.read_frame(self.stdout)
        assert frame is not None
        self.hello = frame[0]["hello"]
        self.number = 0
        self.frames: dict[int, queue.Queue[tuple[dict[str, Any], bytes]]] = {}
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            frame = frames.read_frame(self.stdout)
            if frame is None:
                return
            self.frames[frame[0]["id"]].put(frame)

    def write(self, header: dict[str, Any], blob: bytes = b"") -> None:
        self.stdin.write(frames.encode_frame(header, blob))
        self.stdin.flush()

    def ask(self, verb: str, blob: bytes = b"", **args: Any) -> int:
        self.number += 1
        self.frames[self.number] = queue.Queue()
        self.write({"id": self.number, "verb": verb, "args": args}, blob)
        return self.number

    def frame(self, number: int) -> tuple[dict[str, Any], bytes]:
        return self.frames[number].get(timeout=WITHIN_S)

    def answer(self, number: int) -> dict[str, Any]:
        """Return the last frame of the answer to request `number`. The frames before it contain
        items, and are dropped.
        """
        while True:
            header, _ = self.frame(number)
            if "item" not in header:
                return header

    def call(self, verb: str, blob: bytes = b"", **args: Any) -> dict[str, Any]:
        return self.answer(self.ask(verb, blob, **args))

    def close(self) -> int:
        self.stdin.close()
        return self.process.wait(WITHIN_S)

    def clean(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(WITHIN_S)
        if not self.stdin.closed:
            self.stdin.close()
        self.stdout.close()


def make_run(workdir: Path, run: str, phase: str, boot: str | None = None, **status: Any) -> Path:
    """Write the folder of a run with one task, as the run's own processes write it. Return the
    folder of the task.

    `phase` and `boot` are the phase and the boot id in the host's state.json. `status` has fields
    of the task's status.json.
    """
    folder = Path(layout.host_dir(str(workdir), "job", run, "n1"))
    task = Path(layout.host_dir(str(workdir), "job", run, "n1"), "tasks", "worker-0")
    task.mkdir(parents=True)
    boot = boot or boot_id()
    spec = wire.TaskSpec(task="worker:0", role="worker", index=0, argv=["true"], env={}, port=2222)
    part = wire.HostPart(
        run=run,
        job="job",
        mode="async",
        host="n1",
        plan_digest="digest",
        release="r1",
        tasks=[spec],
    )
    state = wire.HostRunState(run=run, job="job", host="n1", phase=phase, boot_id=boot)
    (folder / "part.json").write_text(json.dumps(wire.to_wire(part)))
    (folder / "state.json").write_text(json.dumps(wire.to_wire(state)))
    if status:
        fields = wire.to_wire(
            wire.TaskStatus(run=run, task="worker:0", host="n1", boot_id=boot, **status)
        )
        (task / "status.json").write_text(json.dumps(fields))
    return task
