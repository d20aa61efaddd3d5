"""Answers verbs over one framed channel, for as long as one SSH session lives (`serve --workdir
ABS`). A module of verbs is loaded when one of its verbs is called.

Each verb runs on its own thread. The thread that reads requests never writes, so it keeps reading
even if the control machine does not read its answers. The answer to an exception has a code and a
text: disk and permission errors have codes of their own, and any unexpected exception is a `bug`,
with its traceback. A process that must outlive the session is
not a child of serve.
"""

from __future__ import annotations

import collections
import errno
import importlib
import io
import os
import sys
import threading
import time

from tfdeploy import __version__
from tfdeploy.agent import AGENT_DIR, frames, layout, ownership
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Deque,
    Dict,
    List,
    Mapping,
    Tuple,
)
from tfdeploy.agent.call import NO_LOCKS, Call, SessionContext, Verb
from tfdeploy.agent.errors import VerbError, is_safe_name
from tfdeploy.agent.host import atomic, boot_id, user_name
from tfdeploy.agent.json_text import THREAD_STACK_BYTES
from tfdeploy.agent.layout import HostPartMissing
from tfdeploy.agent.ownership import UntrustedPath, explain

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, Unchecked

try:
    # Import `_signal`: the module `signal` loads enum, which would take 2 ms in each session.
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal
MOST_THREADS = 256  # limit of verbs that run at the same time; further verbs wait in a queue
NO_THREAD_S = 10.0  # how long a verb may wait until the system allows a thread
ANSWER_S = 0.01  # pause before further modules are loaded, so that the answer is sent first
# errno -> (code of the error, name of the advice in model/answers/failures.py that the user gets)
_CODES = {
    errno.ENOSPC: ("disk", "free_disk"),
    errno.EDQUOT: ("disk", "free_quota"),
    errno.EROFS: ("read_only", "writable_workdir"),
    errno.EACCES: ("permission", "give_access"),
    errno.EPERM: ("permission", "give_access"),
    errno.ENOLCK: ("refused", NO_LOCKS),
    errno.ENOSYS: ("refused", NO_LOCKS),
    errno.EOPNOTSUPP: ("refused", NO_LOCKS),
}
# Maps verbs to modules. A key is a verb, or the part of the verb before the dot. A verb whose
# module has the same name is not listed.
MODULES = {
    "clean": "clean.verbs",
    "data": "datasets.verbs",
    "data.copy": "datasets.origin",
    "data.look": "datasets.origin",
    "env": "env.verbs",
    "keep": "keep_verbs",
    "logs": "run.follow",
    "ping": "server",
    "release": "release.verbs",
    "release.state": "release.store",
    "run": "run.ending",
    "run.commit": "run.launch",
    "run.links": "run.links",
    "run.plan": "run.status",
    "run.prepare": "run.prepare",
    "run.renew": "run.launch",
    "run.resume": "run.minder_start",
    "run.start": "run.launch",
    "run.status": "run.status",
    "run.watch": "run.follow",
    "runs": "run.status",
    "samples": "run.samples",
    "unlock": "lock",
}


class SessionGone(Exception):
    """The control machine no longer reads the answers."""


class ChannelInput(io.FileIO):
    """The channel's input. `last_read`: when bytes last arrived, by time.monotonic()."""

    last_read = 0.0

    def readinto(self, buffer: Any) -> Any:
        count = super().readinto(buffer)
        self.last_read = time.monotonic()
        return count


class Server:
    """Answers the verbs of one session. `incoming`, `outgoing`: descriptors of the channel."""

    def __init__(self, context: SessionContext, incoming: int, outgoing: int) -> None:
        self.context = context
        self._raw = ChannelInput(incoming, "rb")
        self._raw.last_read = time.monotonic()
        self._incoming: BinaryIO = io.BufferedReader(self._raw, 1 << 18)
        self._outgoing = outgoing
        self._writing = threading.Lock()
        self._running: Dict[Any, threading.Event] = {}
        self._waiting: Deque[Tuple[object, Unchecked, bytes]] = collections.deque()
        self._counting = threading.Lock()

    def run(self) -> None:
        """Send the greeting, then answer requests until the input ends. Raises WireError,
        SessionGone, OSError."""
        atomic.write_all(self._outgoing, frames.GREETING + b"\n")
        self.send({"hello": session_facts(self.context)})
        threading.Thread(target=self._exit_after_silence, daemon=True).start()
        while True:
            frame = frames.read_frame(self._incoming)
            if frame is None:
                return
            header, blob = frame
            if "cancel" in header:
                self._cancel(header["cancel"])
            elif "id" in header:
                self._start_or_queue(header["id"], header, blob)

    def send(self, header: Mapping[str, object], blob: bytes = b"") -> None:
        """Send one whole frame. Raises SessionGone."""
        frame = frames.encode_frame(header, blob)
        with self._writing:
            try:
                atomic.write_all(self._outgoing, frame)
            except OSError as error:
                raise SessionGone() from error

    def run_closing_functions(self) -> None:
        """Call all functions in `closing_functions`, which release locks and end programs. May be
        called twice."""
        while self.context.closing_functions:
            try:
                self.context.closing_functions.popitem()[1]()
            except (KeyError, OSError):
                # KeyError: a verb has just removed the last function. OSError: the disk has
                # reported an error. In both cases, the remaining functions are still called.
                pass

    def _exit_after_silence(self) -> None:
        while True:
            remaining = self._raw.last_read + frames.SILENCE_S - time.monotonic()
            if remaining <= 0:
                self.run_closing_functions()
                os._exit(0)
            time.sleep(remaining)

    def _cancel(self, call_id: Any) -> None:
        with self._counting:
            cancelled = self._running.get(call_id)
            self._waiting = collections.deque(
                entry for entry in self._waiting if entry[0] != call_id
            )
        if cancelled is not None:
            cancelled.set()

    def _start_or_queue(self, call_id: Any, header: Unchecked, blob: bytes) -> None:
        with self._counting:
            if len(self._running) >= MOST_THREADS and header.get("verb") != "ping":
                self._waiting.append((call_id, header, blob))
                return
            cancelled = self._running[call_id] = threading.Event()
        _start_thread(lambda: self._answer(call_id, header, blob, cancelled))

    def _answer(
        self, call_id: Any, header: Unchecked, blob: bytes, cancelled: threading.Event
    ) -> None:
        def item(fields: Mapping[str, object], content: bytes = b"") -> None:
            self.send({"id": call_id, "item": fields}, content)

        try:
            answer = self._call_verb(
                header, Call(self.context, header.get("args") or {}, blob, item, cancelled)
            )
            try:
                self.send({**answer, "id": call_id})
            except (TypeError, ValueError, frames.WireError) as error:
                self.send({"id": call_id, "error": failure_answer(error)})
        except SessionGone:
            cancelled.set()
        finally:
            self._finish_and_start_next(call_id)

    def _call_verb(self, header: Unchecked, call: Call) -> Mapping[str, object]:
        try:
            self._check_owners_of_job_folders(call.args)
            return {"value": find_verb(header.get("verb"))(call)}
        except SessionGone:
            raise
        except Exception as error:  # noqa: BLE001 - any error of a verb is answered
            return {"error": failure_answer(error, self.context.workdir)}

    def _check_owners_of_job_folders(self, args: Unchecked) -> None:
        """If the call names a job, check the owner of the folders that hold all files of the job.
        Raises UntrustedPath."""
        job = args.get("job", "")
        if is_safe_name(job):
            ownership.check_owners(self.context.workdir, *layout.job_folders(job))

    def _finish_and_start_next(self, call_id: Any) -> None:
        with self._counting:
            self._running.pop(call_id, None)
            entry = self._waiting.popleft() if self._waiting else None
        if entry is not None:
            self._start_or_queue(*entry)


def _start_thread(work: Callable[[], None]) -> None:
    """Run `work` on a thread of its own, as soon as the system allows one. Raises OSError after
    NO_THREAD_S."""
    give_up = time.monotonic() + NO_THREAD_S
    while True:
        try:
            threading.Thread(target=work, daemon=True).start()
            return
        except (RuntimeError, MemoryError) as error:
            if time.monotonic() >= give_up:
                raise OSError("no memory or no thread is left for this user") from error
        time.sleep(0.1)


def start_launch_cleanup(context: SessionContext) -> None:
    """Undo launches that earlier sessions left unfinished, on a thread of its own. If there is no
    such launch, load no further module."""
    if not os.path.isdir(layout.uncommitted_marks_dir(context.workdir)):
        return

    def sweep() -> None:
        from tfdeploy.agent.serve.run import ending as run_ending

        try:
            run_ending.undo_unfinished_launches(context.workdir, context.host)
        except OSError as error:  # the next session tries again
            sys.stderr.write(
                "tfdeploy agent: unfinished launches on this host cannot be undone: %s\n" % error
            )

    try:
        threading.Thread(target=sweep, daemon=True).start()
    except RuntimeError:  # the system's limit of threads for this user is reached
        return


def session_facts(context: SessionContext) -> Answer:
    """Return the first answer of a session: facts of this host and of the agent."""
    return {
        "version": __version__,
        "agent": os.path.basename(context.agent_dir),
        "home": os.path.expanduser("~"),
        "user": user_name(),
        "workdir": context.workdir,
        "boot_id": boot_id(),
        "hostname": os.uname().nodename,
        "python": sys.executable,
        "python_version": "%d.%d.%d" % sys.version_info[:3],
        "clock": time.time(),
        "ssh_connection": os.environ.get("SSH_CONNECTION"),
        "pid": os.getpid(),
    }


def take_over_stdio() -> Tuple[int, int]:
    """Return (input, output) of the session as new descriptors. Descriptor 0 now reads from
    /dev/null and descriptor 1 writes to standard error. So a stray print or a child process cannot
    disturb the session."""
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return incoming, outgoing


def main(argv: List[str]) -> int:
    """Serve one session. `argv`: --workdir ABSOLUTE_PATH [--host NAME]."""
    if (
        argv[0:3:2] not in (["--workdir"], ["--workdir", "--host"])
        or len(argv) % 2
        or not os.path.isabs(argv[1])
    ):
        sys.stderr.write("usage: serve --workdir ABSOLUTE_PATH [--host NAME]\n")
        return 2
    host = argv[3] if len(argv) > 3 else ""
    os.umask(0o077)
    threading.stack_size(THREAD_STACK_BYTES)
    server = Server(SessionContext(os.path.normpath(argv[1]), AGENT_DIR, host), *take_over_stdio())

    def leave(*_: Any) -> None:
        server.run_closing_functions()
        # The process ends without waiting for its threads: a verb may hang in a write to a pipe
        # that nobody reads.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, leave)
    start_launch_cleanup(server.context)
    try:
        server.run()
    except (frames.WireError, SessionGone, OSError) as error:
        sys.stderr.write("tfdeploy agent: %s\n" % (error or "the session is gone"))
        sys.stderr.flush()
    leave()
    return 0


# --- the function that answers a verb


def ping(call: Call) -> Answer:
    """Return the time of this host's clock."""
    return {"clock": time.time()}


def find_verb(verb_name: Any) -> Verb:
    """Return the function that answers the verb, with the lock check and the audit entry that the
    verb's decorators demand. Raises VerbError unknown_verb."""
    verb = _verbs_of_module(verb_name).get(verb_name) if isinstance(verb_name, str) else None
    if verb is None:
        raise VerbError("unknown_verb", "this agent knows no verb %r" % (verb_name,))
    audit = vars(verb).get("audited")
    if "fenced" in vars(verb):
        verb = _with_job_lock(verb)
    elif verb_name == "lock":
        verb = _with_module_preloading(verb)
    return _with_audit_entry(verb, *audit) if audit else verb


def _verbs_of_module(verb_name: str) -> Mapping[str, Verb]:
    """Return all verbs of the module that would implement this verb, or {} if there is no such
    module."""
    group = verb_name.partition(".")[0]
    if not group.isidentifier():
        return {}
    module = "tfdeploy.agent.serve." + (MODULES.get(verb_name) or MODULES.get(group) or group)
    try:
        table: Mapping[str, Verb] = getattr(importlib.import_module(module), "VERBS", {})
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return {}
    return table


def _with_job_lock(verb: Verb) -> Verb:
    def checked(call: Call) -> Any:
        from tfdeploy.agent.serve import lock

        lock.ensure_job_lock(call)
        return verb(call)

    return checked


def _with_module_preloading(verb: Verb) -> Verb:
    """Return a function that calls `verb`, and then loads the modules of the verbs that the
    argument `soon` names. The loading begins after the answer is sent, while the caller asks other
    hosts."""

    def load(verbs: List[object]) -> None:
        time.sleep(ANSWER_S)
        for each in verbs:
            try:
                find_verb(each)
            except VerbError:  # a later call of that verb reports the error
                return

    def answered(call: Call) -> object:
        value, soon = verb(call), call.rows("soon")
        if soon:
            threading.Thread(target=load, args=(soon,), name="load", daemon=True).start()
        return value

    return answered


def _with_audit_entry(verb: Verb, operation: str, outcome: str) -> Verb:
    """Return a function that calls `verb`, and writes an audit entry when it has ended. TensorBoard
    runs for the whole session, so its entry is written when it begins."""

    def audited(call: Call) -> object:
        from tfdeploy.agent.serve import audit_log

        if operation == "tensorboard":
            audit_log.record_action(call, operation, outcome)
        try:
            value: Any = verb(call)
        except Exception as error:
            failure = "failed: %s" % getattr(error, "code", type(error).__name__)
            audit_log.record_action(call, operation, failure)
            raise
        alive = value.get("survivors") if isinstance(value, dict) else None
        result = "%d processes alive" % len(alive) if alive else outcome
        audit_log.record_action(call, operation, result)
        return value

    return audited


VERBS = {"ping": ping}


# --- the answer to an exception of a verb


def failure_answer(error: BaseException, workdir: str = "") -> Answer:
    """Return the answer to an exception: {"code", "what", "where", "advice", "details"}. If a disk
    is full and the exception names no path, the answer names the path `workdir`."""
    if isinstance(error, UntrustedPath):
        what, advice, details = explain(error)
        error = VerbError("refused", what, where=error.path, advice=advice, details=details)
    if isinstance(error, OSError) and error.errno in _CODES:
        error = _system_error(error, workdir)
    if isinstance(error, HostPartMissing):  # the run was removed while the verb ran
        error = VerbError("unknown_run", str(error), advice="list_runs")
    if not isinstance(error, VerbError):
        import traceback

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        what = "the agent has a bug: %s: %s" % (type(error).__name__, error)
        error = VerbError("bug", what, details={"traceback": "".join(lines)})
    return {
        "code": error.code,
        "what": error.what,
        "where": error.where,
        "advice": error.advice,
        "details": error.details,
    }


def _system_error(error: OSError, workdir: str) -> VerbError:
    assert error.errno is not None
    code, advice = _CODES[error.errno]
    filename = error.filename2 or error.filename
    path = os.fsdecode(filename) if isinstance(filename, (str, bytes)) else None
    what = "%s: %s" % (path, os.strerror(error.errno)) if path else os.strerror(error.errno)
    details: Dict[str, object] = {"errno": error.errno}
    if code == "disk" and (path or workdir):
        from tfdeploy.agent.host.disk import free_space

        free = free_space(path or workdir)
        amount = "no inodes" if free.free_inodes == 0 else _format_size(free.free_bytes)
        what = "%s (%s free)" % (what if path else "no space left in %s" % workdir, amount)
        path = path or workdir
        details.update(free._asdict())
    details["path"] = path
    return VerbError(code, what, where=path, advice=advice, details=details)


def _format_size(byte_count: int) -> str:
    return "%d MiB" % (byte_count >> 20) if byte_count >= 1 << 20 else "%d B" % byte_count
