"""Ends a step that hangs because this task's own server rejected its part of it.

For each step, the master sends each task one RunGraph request with a random id. A task rejects an
id that it knows (see retried_step). The master calls its own task first and directly, so such a
rejection comes before the other tasks are called. TensorFlow then cancels calls that it has not
yet made (RunManyGraphs::ReportBadStatus in tensorflow/core/distributed_runtime/master_session.cc),
makes them, and waits for them. A ps that needs a tensor of this task waits for ever, and so does
session.run().

After 120 s TensorFlow reports that on standard error: "RunStep still blocked after 60 seconds",
with the rejected request. A thread reads the id of the step in the task's log. It asks the task's
own server to run an empty graph as this step, with an input that is refused: a server answers
requests for the tensors of a step only once it was asked to run a graph of it. Then it asks to
clean the step up, which refuses all these requests. The step ends with an error that quotes the
rejection, and retried_step repeats it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Set

from . import retried_step, task
from .wrapping import after_init

POLL_S = 10.0
CALL_TIMEOUT_S = 10.0
_SERVICE = "/tensorflow.WorkerService/"
_CHUNK_BYTES = 1 << 20
_REPORT_BYTES = 4096  # at most, as far as it is read; it may lie across two chunks
_REPORT = re.compile(
    rb"RunStep still blocked after .{0,1000}?"
    + re.escape(retried_step.MESSAGE).encode()
    + rb'\..{0,200}?graph_handle:\s*"\w*"\s*step_id:\s*(\d+)\s',
    re.DOTALL,
)
# A field of RunGraphRequest: the tensor "refused", a number. A rendezvous accepts no such name.
_REFUSED_INPUT = b"\x1a\x0f\n\x07refused\x12\x04\x08\x01\x12\x00"
_addresses: Set[str] = set()  # host:port of this process's servers


def apply(server_lib: Any) -> None:
    """`server_lib`: the module tensorflow.python.training.server_lib."""
    log = os.environ.get("TFDEPLOY_TASK_LOG", "")
    if log:
        after_init(server_lib.Server, lambda server: _watch(str(server.target), log))


def _watch(target: str, log: str) -> None:
    """Start the thread with the first server. `target`: grpc://HOST:PORT."""
    is_first = not _addresses
    _addresses.add(target.partition("://")[2])
    if is_first:
        reports = read_reports(log)
        threading.Thread(target=_run, args=(reports,), name="blocked_step", daemon=True).start()


def _run(steps: Iterator[int]) -> None:
    with contextlib.suppress(OSError):  # the log was removed
        for step in steps:
            task.say("a step that its own task rejected stood still; it is ended and run again")
            for address in list(_addresses):
                _end_or_say(address, step)


def _end_or_say(address: str, step: int) -> None:
    try:
        end_step(address, step)
    except Exception as error:  # noqa: BLE001 a thread of ours
        task.say_failed("blocked_step", error)


def read_reports(log: str, poll_s: float = POLL_S) -> Iterator[int]:
    """Return an iterator over the id of the step of each report written to the log from now on."""
    file = Path(log).open("rb")  # noqa: SIM115 as long as the process
    file.seek(0, os.SEEK_END)
    return _reports(_appended(Path(log), file, poll_s))


def _reports(chunks: Iterator[bytes]) -> Iterator[int]:
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        reports = list(_REPORT.finditer(text))
        yield from (int(each[1]) for each in reports)
        rest = text[max([each.end() for each in reports] + [len(text) - _REPORT_BYTES]) :]


def _appended(log: Path, file: BinaryIO, poll_s: float) -> Iterator[bytes]:
    """Yield what is appended to a log, also after its writer has renamed it and begun another."""
    try:
        while True:
            time.sleep(poll_s)
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
            with contextlib.suppress(FileNotFoundError):  # between the writer's two calls
                if log.stat().st_ino != os.fstat(file.fileno()).st_ino:
                    file.close()
                    file = log.open("rb")
    finally:
        file.close()


def end_step(address: str, step: int) -> None:
    """Ask the server at `address` (HOST:PORT) to end its part of a step.

    An answer to RegisterGraph is one field, the handle of the graph. RunGraph and DeregisterGraph
    have the same field, so their requests begin with that answer. Raises grpc.RpcError."""
    import grpc  # TensorFlow needs it too

    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:

        def call(method: str, request: bytes) -> bytes:
            answer: bytes = channel.unary_unary(_SERVICE + method)(request, timeout=CALL_TIMEOUT_S)
            return answer

        empty_graph = call("RegisterGraph", b"")
        try:
            # Without this input, TensorFlow would run the empty graph, and abort the process.
            call("RunGraph", empty_graph + _number(2, step) + _REFUSED_INPUT)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise  # after a cleanup alone, nothing ends the step any more
        call("CleanupGraph", _number(1, step))
        call("DeregisterGraph", empty_graph)


def _number(field: int, value: int) -> bytes:
    """A field of a message of protocol buffers. TensorFlow's Python has no classes for these."""
    encoded = bytearray([field << 3])
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
