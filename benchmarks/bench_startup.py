"""Measure the start of `tfdeploy --version` and `--help`, and the CPU time of a shell completion.

The start is compared with the start of an empty Python interpreter. The usual completers of Python
programs start an interpreter for each answer. So a completion in each shell is compared with an
interpreter that imports the parsers of all verbs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from figures import Figures, options
from place import TFDEPLOY
from turns import Spent, in_turns, median, spend

from tfdeploy.cli.arguments.completion import SHELLS, Shell
from tfdeploy.cli.completion.script import make_script
from tfdeploy.store.names import store_completion_names

# The goals in ms: the time that each command may take, minus the time of an empty interpreter.
EXTRA_MS = {"--version": 50.0, "--help": 150.0}
# The goals in ms: the CPU time that each command may use, minus the CPU time of an empty
# interpreter. Of each command, the quickest round counts.
EXTRA_CPU_MS = {"launch --help": 60.0, "lab --help": 60.0}
ANSWER_MS = 80.0
ANSWERS = 10
HOSTS = [f"gpu-node{number:04}.cluster" for number in range(2000)]
LINES = {
    "2,000 hosts": "tfdeploy ssh ",
    "100 of 2,000 hosts": "tfdeploy ssh gpu-node19",
    "a flag": "tfdeploy launch --mo",
}
# {shell: (its flags, a script that completes the command line in $1 as often as $2 says)}
PROGRAMS: dict[Shell, tuple[list[str], str]] = {
    "bash": (
        ["--norc"],
        ". {script}; compopt() { :; }; COMP_LINE=$1 COMP_POINT=${#1}; "
        "for ((n = 0; n < $2; n++)); do _tfdeploy; done; true",
    ),
    # The functions of zsh's completion system fail outside its line editor, so functions that do
    # nothing replace them.
    "zsh": (
        ["-f"],
        "compdef() { :; }; compadd() { :; }; _wanted() { :; }; _describe() { :; }; "
        "compset() { :; }; "
        ". {script}; words=(${(s: :)1}); [[ $1 != *' ' ]] || words+=(''); "
        "CURRENT=$#words PREFIX=$words[-1]; for ((n = 0; n < $2; n++)); do _tfdeploy; done; true",
    ),
    "fish": (
        ["--no-config"],
        "source {script}; for n in (seq $argv[3]); complete -C $argv[2] >/dev/null; end",
    ),
}
ALL_PARSERS = "from tfdeploy.cli.command import make_parser; make_parser()"


def run(*argv: str, folder: Path = Path("/"), **variables: str) -> Spent:
    return spend(argv, env={**os.environ, **variables}, cwd=folder)


def measure_startup(figures: Figures, rounds: int) -> None:
    timings = in_turns(
        {
            "empty": lambda: run(sys.executable, "-c", "pass"),
            **{flag: partial(run, TFDEPLOY, *flag.split()) for flag in (*EXTRA_MS, *EXTRA_CPU_MS)},
            "parsers": lambda: run(sys.executable, "-c", ALL_PARSERS),
        },
        rounds,
    )
    empty = 1000 * median(timings["empty"])
    figures.add("an empty interpreter", empty, "ms")
    for flag, goal in EXTRA_MS.items():
        figures.add(
            f"tfdeploy {flag}, beyond that", 1000 * median(timings[flag]) - empty, "ms", goal=goal
        )
    least = {what: 1000 * min(map(_cpu, each)) for what, each in timings.items()}
    for flag, goal in EXTRA_CPU_MS.items():
        name = f"CPU of tfdeploy {flag}, beyond an empty interpreter"
        figures.add(name, least[flag] - least["empty"], "ms", goal=goal)
    for what in ("empty", "parsers"):
        figures.add(f"CPU of an interpreter, {what}", 1000 * median(timings[what], _cpu), "ms")


def measure_completion(figures: Figures, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        store_completion_names(folder / "tfdeploy", folder, "hosts", HOSTS)
        for shell in filter(shutil.which, SHELLS):
            for what, line in LINES.items():
                busy, idle = _cost_of_answers(shell, line, folder, rounds)
                answer_ms = 1000 * (busy - idle) / ANSWERS
                figures.add(f"CPU of {shell}: {what}", answer_ms, "ms", goal=ANSWER_MS)


def _cost_of_answers(shell: Shell, line: str, folder: Path, rounds: int) -> Iterator[float]:
    """Return the CPU seconds of a shell that completes ANSWERS times, and of a shell that only
    reads the completion script."""
    script = folder / f"script.{shell}"
    script.write_text(make_script(shell), encoding="utf-8")
    flags, program = PROGRAMS[shell]
    argv = [shell, *flags, "-c", program.replace("{script}", str(script)), shell, line]
    variables = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "LC_ALL": "C.UTF-8"}
    spent = in_turns(
        {
            "busy": lambda: run(*argv, str(ANSWERS), folder=folder, **variables),
            "idle": lambda: run(*argv, "0", folder=folder, **variables),
        },
        rounds,
    )
    return (median(each, _cpu) for each in spent.values())


def _cpu(spent: Spent) -> float:
    return spent.cpu_s


def main() -> None:
    args = options(__doc__, rounds=15)
    figures = Figures("startup", args.json)
    measure_startup(figures, args.rounds)
    measure_completion(figures, args.rounds)


if __name__ == "__main__":
    main()
