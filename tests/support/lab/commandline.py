"""Run the real `tfdeploy` as the operator of a lab.

The operator has its own home and state folder, no SSH agent, and no settings of the caller.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from support.lab.forked_client import REPOSITORY, ForkedClient, can_fork
from support.lab.glance import Glance
from support.lab.host_commands import host_command
from support.schemas import find_printed_faults
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.lab import Lab

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def wait_for_end(process: subprocess.Popen[str], within_s: float = 60.0) -> tuple[int, str]:
    """Wait until the process ends, and return (exit code, all output).

    Raises TimeoutExpired if the process does not end within `within_s` seconds, as measured by a
    Stopwatch.
    """
    watch = Stopwatch()
    while True:
        try:
            output, _ = process.communicate(timeout=1.0)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            if watch.seconds > within_s:
                raise


class Tfdeploy:
    """The tfdeploy of one operator. Commands run in the folder `cwd`; tests write the job file
    there.
    """

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab = lab
        self.home = home
        self.cwd = home / "work"
        self.cwd.mkdir(parents=True)
        # The interpreter's own arguments. In the command line they stand before the arguments of
        # tfdeploy.
        self.program = ["-m", "tfdeploy"]
        # If True, each command starts a new interpreter, as for a user, instead of a fork.
        self.cold = False
        self.running: list[subprocess.Popen[str]] = []
        self.env = {
            "HOME": str(home),
            "PATH": PATH,
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
            "XDG_STATE_HOME": str(home / "state"),
            "TFDEPLOY_INVENTORY": str(lab.inventory),
        }

    def argv(self, *args: str) -> list[str]:
        """Return the whole command line, for tests that start tfdeploy through another program (a
        shell, `timeout`). It must be run with the environment `env`.
        """
        return self.lab.operator_command([sys.executable, *self.program, *args])

    def run(
        self,
        *args: str,
        timeout_s: float = 300.0,
        exit_code: int | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `tfdeploy ARGS` until it ends.

        If `exit_code` is given and differs, the test fails and shows both streams.
        """
        pipe = subprocess.PIPE
        with self._client(args, env, stdin=pipe, stdout=pipe, stderr=pipe) as client:
            try:
                output, errors = client.communicate(stdin or "", timeout=timeout_s)
            except BaseException:
                client.kill()
                raise
        done = subprocess.CompletedProcess(client.args, client.returncode, output, errors)
        if exit_code is not None and done.returncode != exit_code:
            output = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            raise AssertionError(
                f"tfdeploy {' '.join(args)}: exit {done.returncode}, not {exit_code}\n{output}"
            )
        return done

    def json(self, *args: str, timeout_s: float = 300.0, exit_code: int | None = 0) -> Any:
        """Return the JSON that `tfdeploy ARGS --json` prints, checked against its schema.

        Flags must come before `--`.
        """
        at = args.index("--") if "--" in args else len(args)
        answer = json.loads(
            self.run(
                *args[:at], "--json", *args[at:], timeout_s=timeout_s, exit_code=exit_code
            ).stdout
        )
        if self.is_this_version():
            assert find_printed_faults(args, answer) == [], answer
        return answer

    def start(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[str] = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start tfdeploy in the background, in its own session. `end_all` ends processes that are
        still alive.
        """
        how = {"stdout": stdout, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = self._client(args, env, stdin=subprocess.DEVNULL, **how)
        self.running.append(process)
        return process

    def _client(
        self, args: Sequence[str], env: Mapping[str, str] | None, **how: Any
    ) -> subprocess.Popen[str]:
        variables = {**self.env, **(env or {})}
        warm = not self.cold and self.is_this_version() and can_fork(variables)
        kind = ForkedClient if warm else subprocess.Popen
        return kind(
            self.argv(*args), env=variables, cwd=self.cwd, text=True, errors="replace", **how
        )

    def is_this_version(self) -> bool:
        """Return True if this object runs the tfdeploy of this repository, and not an older version
        or a program of the test.
        """
        return self.program == ["-m", "tfdeploy"] and self.env["PYTHONPATH"] == str(REPOSITORY)

    def end_all(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def stop_all(self) -> None:
        """Stop every run that the lab's hosts know. Errors are ignored."""
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):
            for row in json.loads(self.run("runs", "--all", "--json").stdout)["runs"]:
                if row["live"] is not False:
                    self.run("stop", row["run"], "--now")

    def state(self, run: str = "") -> str:
        """Return the state of the run, from `status`."""
        return str(self.json("status", *([run] if run else []))["state"])

    def wait_until(self, state: str, run: str = "", *, timeout_s: float = 60.0) -> None:
        glance = Glance(self.lab, run)
        wait_for(
            lambda: glance() and self.state(run) == state,
            timeout_s,
            f"{run or 'the run'} is {state}",
        )

    def marked(self, host: str, run: str) -> list[int]:
        """Return the pids of the host's processes that have the name of the run in their
        environment.
        """
        script = f"grep -lzx TFDEPLOY_TASK_RUN_ID={run} /proc/[0-9]*/environ 2>/dev/null"
        done = subprocess.run(
            host_command(self.lab, host, ["sh", "-c", script]),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return [int(path.split("/")[2]) for path in done.stdout.split()]
