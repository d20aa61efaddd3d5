"""Start the program of one task. It gets its environment, a session of its own, and two pipes for
its output. Nothing is decided here."""

from __future__ import annotations

import os
import subprocess

from tfdeploy.agent import AGENT_DIR, wire
from tfdeploy.agent.annotations import Dict, List, Mapping, Tuple
from tfdeploy.agent.host import processes
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.task_processes import FOLDER_MARKER

RUNTIME_SITE = os.path.join(AGENT_DIR, "tfdeploy", "runtime", "site")
# Variables that a task does not inherit from the agent. These ones describe the SSH session in
# which the agent was started, and mean nothing after that session.
_FOREIGN = (
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_ORIGINAL_COMMAND",
    "SSH_TTY",
    "XDG_SESSION_ID",
    "OLDPWD",
    "_",
    # Only the plan may set the following two variables: values from a login shell would describe
    # another cluster.
    "TF_CONFIG",
    "TF_GRPC_REUSE_PORT",
)


def build_environment(
    paths: RunPaths,
    spec: wire.TaskSpec,
    attempt: int,
    inherited_env: Mapping[str, str],
    secret_by_variable: Mapping[str, str],
) -> Dict[str, str]:
    """Return all environment variables for the program of the task."""
    env = {
        name: text
        for name, text in inherited_env.items()
        if name not in _FOREIGN and not name.startswith("TFDEPLOY_")
    }
    env["PWD"] = paths.task_cwd(spec)
    if spec.port is not None:
        # The minder holds the port. With this variable, TensorFlow can bind it nevertheless.
        env["TF_GRPC_REUSE_PORT"] = "true"
    env.update(spec.env)
    env.update(secret_by_variable)
    if not env.get("GRPC_FAIL_FAST", "-"):
        del env["GRPC_FAIL_FAST"]  # TensorFlow aborts if this variable is set but empty
    env["PATH"] = os.pathsep.join(spec.path_prepend + [env.get("PATH", os.defpath)])
    if spec.runtime:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [RUNTIME_SITE, env.get("PYTHONPATH")]))
    identity = (paths.run, paths.job, spec.role, str(spec.index), paths.host, str(attempt))
    env.update(zip(wire.TASK_MARKERS, identity))  # noqa: B905 - Python 3.8 lacks strict=
    env["TFDEPLOY_TASK_LOG"] = os.path.join(paths.task_dir(spec.task), LOG)
    env[FOLDER_MARKER] = os.path.realpath(paths.host_dir)
    if spec.traits is not None:
        env["TFDEPLOY_TASK_TRAITS"] = ",".join(spec.traits)
    return env


def spawn_program(
    argv: List[str], env: Dict[str, str], cwd: str, inherited: Tuple[int, ...]
) -> Tuple[int, int, int]:
    """Start the program in a session of its own. Return (pid, descriptor of its standard output,
    descriptor of its standard error). If this process dies, the kernel kills the program.

    `inherited`: descriptors that the program inherits under the same numbers. Raises OSError.
    """
    parent = os.getpid()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
        pass_fds=inherited,
        preexec_fn=lambda: processes.die_with_parent(parent),
        bufsize=0,
    )
    # The supervisor itself reaps the program by waitpid. The return code is set here, so that Popen
    # does not wait for the program too.
    process.returncode = 0
    assert process.stdout is not None and process.stderr is not None
    pipes = (os.dup(process.stdout.fileno()), os.dup(process.stderr.fileno()))
    process.stdout.close()
    process.stderr.close()
    return process.pid, pipes[0], pipes[1]
