"""End a training step that hangs because this task's own server has rejected a request.

For each step, TensorFlow's master sends one RunGraph request with a random id to each task. A task
rejects a request if it has seen the id before (see retried_step). The master calls its own task
first and directly, so it gets such a rejection before it has called the other tasks. TensorFlow
then cancels the calls to the other tasks, but too early: these calls have not been made yet, so
they are still made, and TensorFlow waits for them (RunManyGraphs::ReportBadStatus in
tensorflow/core/distributed_runtime/master_session.cc). A ps that needs a tensor of this task waits
forever, and so does session.run().

After 120 s TensorFlow writes a report to standard error: "RunStep still blocked after 60 seconds",
with the rejected request. A thread of this module finds the report in the task's log and reads the
id of the step from the report. The thread then sends two requests to the task's own server:
1. Run an empty graph as this step, with an input that the server refuses. Until a server gets a
   RunGraph request for a step, it answers no requests for the tensors of the step.
2. Clean up the step. The server then refuses all requests for the tensors of the step.

The step ends with an error that quotes the rejection, and retried_step repeats the step.
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
from .wrapping import call_after_init, report_errors

# Seconds between two reads of the task's log.
POLL_S = 10.0
CALL_TIMEOUT_S = 10.0
_SERVICE = "/tensorflow.WorkerService/"
_CHUNK_BYTES = 1 << 20
# The id of the step is within the first _REPORT_BYTES bytes of a report. A report may be split
# between two chunks, so the last _REPORT_BYTES bytes of each chunk are searched again with the
# next.
_REPORT_BYTES = 4096
_REPORT = re.compile(
    rb"RunStep still blocked after .{0,1000}?"
    + re.escape(retried_step.MESSAGE).encode()
    + rb'\..{0,200}?graph_handle:\s*"\w*"\s*step_id:\s*(\d+)\s',
    re.DOTALL,
)
# A field of a RunGraphRequest: an input tensor with the name "refused" and a number as its value.
# The server refuses the tensor, because its name does not have the form of a key under which tasks
# exchange tensors.
_REFUSED_INPUT = b"\x1a\x0f\n\x07refused\x12\x04\x08\x01\x12\x00"
# HOST:PORT of each TensorFlow server that this process has started.
_addresses: Set[str] = set()


def patch_module(server_lib_module: Any) -> None:
    """Patch tensorflow.python.training.server_lib to call `_watch_server` for each new server."""
    log = os.environ.get("TFDEPLOY_TASK_LOG", "")
    if log:
        call_after_init(
            server_lib_module.Server, lambda server: _watch_server(str(server.target), log)
        )


def _watch_server(target: str, log: str) -> None:
    """Register a server. For the first server, also start the thread that reads the log. `target`:
    the server's address as grpc://HOST:PORT. `log`: the path of the task's log."""
    is_first = not _addresses
    _addresses.add(target.partition("://")[2])
    if is_first:
        reports = follow_step_ids(log)
        threading.Thread(
            target=_end_blocked_steps, args=(reports,), name="blocked_step", daemon=True
        ).start()


def _end_blocked_steps(steps: Iterator[int]) -> None:
    # OSError means that the log has been removed. Then there is nothing more to read.
    with contextlib.suppress(OSError):
        for step in steps:
            task.print_once(
                "a training step hangs because this task rejected it; tfdeploy repeats the step"
            )
            for address in list(_addresses):
                with report_errors("blocked_step"):
                    end_step(address, step)


def follow_step_ids(log: str) -> Iterator[int]:
    """Return an iterator over the reports that are appended to the log after this call. Each value
    is the id of the step that the report names."""
    file = Path(log).open("rb")  # noqa: SIM115 it is open as long as the process lives
    file.seek(0, os.SEEK_END)
    return _parse_reports(_read_appended(Path(log), file))


def _parse_reports(chunks: Iterator[bytes]) -> Iterator[int]:
    held = b""
    for chunk in chunks:
        held += chunk
        begin = len(held) - _REPORT_BYTES
        for report in _REPORT.finditer(held):
            yield int(report[1])
            begin = max(begin, report.end())
        held = held[max(0, begin) :]


def _read_appended(log: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes that are appended to a log, even after its writer has rotated the log."""
    try:
        while True:
            time.sleep(POLL_S)
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
            # FileNotFoundError is raised if the writer has renamed the log but has not yet created
            # the new one.
            with contextlib.suppress(FileNotFoundError):
                if log.stat().st_ino != os.fstat(file.fileno()).st_ino:
                    file.close()
                    file = log.open("rb")
    finally:
        file.close()


def end_step(address: str, step: int) -> None:
    """Ask the server at `address` (HOST:PORT) to end its part of the step with the id `step`.
    Raises grpc.RpcError.

    The answer to RegisterGraph has one field, the handle of the graph. The requests RunGraph and
    DeregisterGraph have the same field. So the code copies the bytes of the answer to the beginning
    of these requests."""
    # TensorFlow itself depends on grpc, so grpc is installed.
    import grpc

    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:

        def call(method: str, request: bytes) -> bytes:
            answer: bytes = channel.unary_unary(_SERVICE + method)(request, timeout=CALL_TIMEOUT_S)
            return answer

        empty_graph = call("RegisterGraph", b"")
        try:
            # The server must refuse this request because of its invalid input. Otherwise it would
            # run the empty graph, and TensorFlow would abort the process.
            call("RunGraph", empty_graph + _encode_number(2, step) + _REFUSED_INPUT)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                # The step is not cleaned up here. After a cleanup without a refused RunGraph
                # request, nothing could end the step any more.
                raise
        call("CleanupGraph", _encode_number(1, step))
        call("DeregisterGraph", empty_graph)


def _encode_number(field: int, value: int) -> bytes:
    """Return a whole number, encoded as a field of a protocol buffer message. TensorFlow's Python
    package has no classes for the messages that are used here."""
    encoded = bytearray([field << 3])
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
