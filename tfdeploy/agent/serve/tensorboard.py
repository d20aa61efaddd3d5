"""Answers `tensorboard`: runs TensorBoard on a run's working directory, which has links to its keep
folders.

TensorBoard listens on loopback only. All users of the host can reach loopback, so TensorBoard's
pages are below a path that only this user and the operator know. TensorBoard ends with this
session: see bound.py.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict
from tfdeploy.agent.call import Call, audited
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.installed import StartedProgram, find_program
from tfdeploy.agent.host.network.listening import has_listener
from tfdeploy.agent.run import shown_plan
from tfdeploy.agent.run.folder import agent_command
from tfdeploy.agent.serve.run.status import named_run_paths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# How long TensorBoard may take to listen; it may import TensorFlow from a slow disk.
UP_WITHIN_S = 120.0
TRIES = 3  # how often TensorBoard is started at most; a start fails if its port was just taken
_OUTPUT_BYTES = 16 << 10  # how many bytes at the end of TensorBoard's output are kept
PATH_BYTES = 16  # random bytes in the secret path of TensorBoard's pages
_PATH = "TFDEPLOY_TENSORBOARD_PATH"
# The secret path is passed in an environment variable, because only the owner of a process can read
# its environment. Every user can read its command line.
_START = (
    "import os, runpy, sys; sys.argv[0] = 'tensorboard'; sys.argv.append('--path_prefix=' + "
    "os.environ.pop('%s')); "
    "runpy.run_module('tensorboard.main', run_name='__main__')" % _PATH
)
_PORT_ERROR = re.compile(r"(?i)address already in use|could not bind|port \d+")
_FIND = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('tensorboard') else 3)"


@audited("tensorboard", "served")
def serve_tensorboard(call: Call) -> Answer:
    """Run TensorBoard on the run's working directory, until the call is cancelled or the session
    ends. TensorBoard listens on loopback only, and its pages are below a random path.

    Args: run, job, python ("": the interpreter that the plan on this host names).

    Raises VerbError unknown_run, no_python, no_tensorboard, tensorboard (TensorBoard did not start;
    with its last line of output).
    """
    paths = named_run_paths(call)
    if not os.path.isdir(paths.cwd):
        raise VerbError(
            "unknown_run",
            "the working directory of run %s was removed from this host" % paths.run,
            where=paths.cwd,
        )
    planned = shown_plan.planned_python(paths.workdir, paths.job, paths.run, paths.host)
    python = _find_tensorboard_python(call.text("python") or planned or "python3")
    tries_left = TRIES
    while True:
        tries_left -= 1
        folder = os.path.join(paths.run_dir, ".tensorboard-%s" % os.urandom(4).hex())
        board = _TensorBoardProcess(python, paths.cwd, folder)
        try:
            is_up = board.wait_until_listening(call)
            if is_up:
                call.item({"port": board.port, "path": board.path}, b"")
                board.serve_until_cancelled(call)
            if call.cancelled.is_set() or is_up:
                return {"code": board.process.poll(), "said": board.output}
        finally:
            board.close_input_and_wait()
        if not tries_left or not _PORT_ERROR.search(board.output):
            what = "TensorBoard did not start: %s" % board.last_line
            raise VerbError("tensorboard", what, where=paths.cwd)


def _find_tensorboard_python(python_setting: str) -> str:
    python = find_program(python_setting)
    if python is None:
        raise VerbError("no_python", "there is no program %s here" % python_setting)
    code, _, errors = StartedProgram([python, "-c", _FIND]).read_output()
    if code == 3:
        raise VerbError(
            "no_tensorboard",
            "TensorBoard is not installed in %s" % python,
            advice="install_tensorboard",
            details={"path": python},
        )
    if code != 0:
        raise VerbError("no_python", "%s does not run Python here: %.300s" % (python, errors))
    return python


class _TensorBoardProcess:
    """One TensorBoard process, which the program `bound` runs (bound.py). TensorBoard lives as long
    as this serve process holds the standard input of `bound` open."""

    def __init__(self, python: str, logdir: str, folder: str) -> None:
        self._output = b""
        self.port, self.path = _free_port(), "/" + os.urandom(PATH_BYTES).hex()
        options = ["--logdir", logdir, "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(
            agent_command("bound", folder, python, "-c", _START, *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(_tensorboard_environment(python), **{_PATH: self.path}),
            start_new_session=True,
        )

    def wait_until_listening(self, call: Call) -> bool:
        """Wait until TensorBoard listens. Return False if it has ended, if it does not listen
        within UP_WITHIN_S, or if the call is cancelled."""
        deadline = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < deadline and not call.cancelled.is_set():
            if not self._read_output(0.1):
                return False
            pids = processes.descendants([self.process.pid], processes.all_processes())
            if has_listener(pids, self.port):
                return True
        return False

    def serve_until_cancelled(self, call: Call) -> None:
        """Return when TensorBoard has ended or the call is cancelled."""
        while not call.cancelled.is_set() and self._read_output(0.2):
            pass

    def close_input_and_wait(self) -> None:
        """Close the input of `bound` and wait until `bound` has ended. Then no process of
        TensorBoard is alive."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        while self._read_output(1.0):
            pass
        self.process.stdout.close()
        self.process.wait()

    @property
    def output(self) -> str:
        return self._output.decode("utf-8", "replace").strip()

    @property
    def last_line(self) -> str:
        return (self.output.splitlines() or ["it printed nothing"])[-1][:400]

    def _read_output(self, timeout_s: float) -> bool:
        """Read the output of TensorBoard, waiting up to `timeout_s`. Return False if TensorBoard
        has ended."""
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        if not select.select([output], [], [], timeout_s)[0]:
            return self.process.poll() is None
        block = os.read(output, 1 << 16)
        self._output = (self._output + block)[-_OUTPUT_BYTES:]
        return bool(block)


def _tensorboard_environment(python: str) -> Dict[str, str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith("TFDEPLOY_")}
    env["PATH"] = os.pathsep.join([os.path.dirname(python), env.get("PATH", os.defpath)])
    # TensorBoard must not use the GPUs, because they belong to the training.
    env.update(CUDA_VISIBLE_DEVICES="", PYTHONUNBUFFERED="1", TF_CPP_MIN_LOG_LEVEL="2")
    return env


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


VERBS = {"tensorboard": serve_tensorboard}
