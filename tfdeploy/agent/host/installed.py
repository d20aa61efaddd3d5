"""Start the programs that tell what is installed on a host: the user's Python interpreter,
nvidia-smi and rsync. They run at the same time, and their answers are read later.

The time and the size of an answer are limited. An unexpected answer raises no exception.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Iterable, List, Optional, Tuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

UV_PATHS = ("uv", "~/.local/bin/uv", "~/.cargo/bin/uv")
# Limits the time of each program. An interpreter on a slow network disk needs many seconds.
TIMEOUT_S = 20.0
_MOST_BYTES = 1 << 20  # limits how much of each program's output is read
_GPU_QUERY = "--query-gpu=index,uuid,name,memory.total,memory.used"

# This script runs in the user's interpreter, whatever its version. To find the versions of
# packages, it reads the names of the folders in which pip records packages. It also reports which
# of the modules in its arguments could be imported, but imports none of them.
_PYTHON_SCRIPT = r"""
import json, os, re, sys
sys.path = [folder for folder in sys.path if folder]
found, package, facts = {}, False, dict.fromkeys(("tf_keras", "keras", "numpy"))
for folder in sys.path:
    try:
        names = os.listdir(folder)
    except OSError:
        continue
    package = package or "tensorflow" in names
    for name in names:
        hit = re.match(r"(?i)((?:nvidia[_-])?(?:tensorflow|tf[_-]nightly)"
                       r"(?:[_-](?:cpu|gpu|intel|macos|rocm|cpu[_-]aws))?)"
                       r"-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$", name)
        if hit:
            found.setdefault(hit.group(1).lower().replace("-", "_"), hit.group(2))
        hit = re.match(r"(?i)(tf[_-]keras|keras|numpy)(?:[_-]nightly)?"
                       r"-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$", name)
        if hit:
            key = hit.group(1).lower().replace("-", "_")
            facts[key] = facts[key] or hit.group(2)
version = found.get("tensorflow") or (sorted(found.items())[0][1] if found else None)
modules = {}
try:
    if sys.argv[1:]:
        from importlib.util import find_spec
    for name in sys.argv[1:]:
        try:
            modules[name] = find_spec(name) is not None
        except Exception:
            modules[name] = True
except ImportError:
    pass
facts.update(
    python_version=".".join(map(str, sys.version_info[:3])),
    tensorflow=version or ("unknown" if package else None),
    cpu_only=bool(found) and all(name.endswith(("cpu", "intel", "cpu_aws")) for name in found),
    modules=modules,
)
print("=tfdeploy-python=" + json.dumps(facts))
"""


class StartedProgram:
    """A program that was started. If it could not be started, `error` says why. `input_text`: the
    text for its standard input, sent when the answer is read."""

    def __init__(
        self, argv: List[str], input_text: str = "", env: Optional[Dict[str, str]] = None
    ) -> None:
        self.error: Optional[OSError] = None
        self._input, self._deadline = input_text.encode("ascii"), time.monotonic() + TIMEOUT_S
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", env=env
            )
        except OSError as error:
            self.error = error

    def read_output(self) -> Tuple[Optional[int], str, str]:
        """Return (exit code, output, errors). The exit code is None if the program could not run or
        took too long; then `errors` says why."""
        if self.error is not None:
            return None, "", os.strerror(self.error.errno or 0)
        try:
            out, err = self._process.communicate(
                self._input, max(0.1, self._deadline - time.monotonic())
            )
        except subprocess.TimeoutExpired:
            self._process.kill()
            # Wait only for the process itself, because a child of it may keep the output open.
            with self._process:
                return None, "", "no answer within %g s" % TIMEOUT_S
        return self._process.returncode, _decode_output(out), _decode_output(err)

    def read_marked_line(self, marker: str) -> Tuple[Optional[str], str]:
        """Find the line of the output that begins with `marker`, and return (the text after the
        marker, ""). If there is no such line, return (None, the last line that the program printed,
        or its exit code)."""
        code, out, err = self.read_output()
        for line in out.splitlines():
            if line.startswith(marker):
                return line[len(marker) :], ""
        last = (err or out).splitlines()[-1:] or ["exit code %s" % code]
        return None, last[0][:300]


def _decode_output(raw: bytes) -> str:
    return raw[:_MOST_BYTES].decode("utf-8", "replace").strip()


def find_program(name: str) -> Optional[str]:
    """Return the absolute path of a program, or None. In `name`, ~ stands for $HOME; a name without
    a slash is searched on PATH. Links are not resolved, because the interpreter of a virtual
    environment is a link."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if "/" in name:
        name, folders = os.path.expanduser(name), [os.path.expanduser("~")]
    for folder in folders:
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path if os.path.isabs(path) else os.path.abspath(path)
    return None


def start_python_query(
    path: Optional[str], modules: Iterable[str] = ()
) -> Optional[StartedProgram]:
    """Start the interpreter at `path`. Return None if no path was given. `modules`: names of
    top-level modules; `read_python_facts` reports which of them could be imported."""
    return None if path is None else StartedProgram([path, "-c", _PYTHON_SCRIPT, *modules])


def read_python_facts(
    program: Optional[StartedProgram], python: str
) -> Tuple[Answer, Optional[str]]:
    """Return (facts, error or None). The facts are the versions of Python, TensorFlow, tf_keras,
    Keras and NumPy, and which modules could be imported."""
    versions: Answer = dict.fromkeys(("python_version", "tensorflow", "tf_keras", "keras", "numpy"))
    versions.update(cpu_only=False, modules={})
    if program is None:
        return versions, "there is no program %s here" % python
    printed, problem = program.read_marked_line("=tfdeploy-python=")
    if printed is not None:
        return json.loads(printed), None
    return versions, "%s does not run Python here: %s" % (python, problem)


def start_rsync_query() -> StartedProgram:
    return StartedProgram(["rsync", "--version"])


def find_uv() -> Optional[str]:
    """Return the path of uv, or None. The folders into which uv's installer writes are searched
    too, because they may not be on PATH in a session that reads no profile."""
    return next(filter(None, map(find_program, UV_PATHS)), None)


def read_rsync_version(program: StartedProgram) -> Optional[str]:
    """Return the version that rsync has printed. Return None if rsync is not installed."""
    printed = program.read_output()[1].split()
    return printed[printed.index("version") + 1] if "version" in printed[:-1] else None


def start_gpu_query() -> StartedProgram:
    return StartedProgram(["nvidia-smi", _GPU_QUERY, "--format=csv,noheader,nounits"])


def start_driver_query() -> StartedProgram:
    return StartedProgram(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])


def read_driver_version(program: Optional[StartedProgram]) -> Optional[str]:
    """Return the version of NVIDIA's driver. Return None if there is no driver or nvidia-smi does
    not report its version."""
    version = program.read_output()[1].split()[:1] if program is not None else []
    is_version = version and version[0][:1].isdigit() and version[0].replace(".", "").isdigit()
    return version[0] if is_version else None


def read_gpus(program: Optional[StartedProgram]) -> Tuple[List[Answer], Optional[str]]:
    """Return (list of GPUs in the order of their indices, error of nvidia-smi or None). On a host
    without nvidia-smi, there are no GPUs and no error."""
    if program is None or isinstance(program.error, FileNotFoundError):
        return [], None
    code, out, err = program.read_output()
    if code != 0:
        return [], "nvidia-smi: %.300s" % (err or out or "exit code %s" % code)
    gpus: List[Answer] = []
    for line in out.splitlines():
        columns = [word.strip() for word in line.split(",")]
        if len(columns) < 5 or not columns[0].isdigit():
            return [], "nvidia-smi: cannot read %.200r" % line
        name = ", ".join(columns[2:-2])
        gpus.append(
            {
                "index": int(columns[0]),
                "uuid": columns[1],
                "name": name,
                "memory_mib": _parse_mib(columns[-2]),
                "used_mib": _parse_mib(columns[-1]),
            }
        )
    return sorted(gpus, key=lambda gpu: gpu["index"]), None


def _parse_mib(text: str) -> int:
    """Return the number of MiB. Return 0 if the driver does not report it ("[N/A]")."""
    return int(text) if text.isdigit() else 0
