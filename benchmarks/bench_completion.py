"""Measure the CPU time of a completion: all of 2,000 hosts, a hundred of them, and a flag.

The rival is a new interpreter that imports the parsers of all verbs, as completers do that start
Python for each answer.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from figures import Figures, options
from turns import Spent, in_turns, median, spend

from tfdeploy.cli.arguments.completion import SHELLS
from tfdeploy.cli.completion.script import make_script
from tfdeploy.store.names import remember_names

GOAL_MS = 80.0
ANSWERS = 10
HOSTS = [f"gpu-node{number:04}.cluster" for number in range(2000)]
LINES = {
    "2,000 hosts": "tfdeploy ssh ",
    "100 hosts": "tfdeploy ssh gpu-node19",
    "a flag": "tfdeploy launch --mo",
}
# The shell answers the line $1 as often as $2 says.
PROGRAMS = {
    "bash": (
        "bash --norc -c",
        ". {script}; compopt() { :; }; COMP_LINE=$1 COMP_POINT=${#1}; "
        "for ((n = 0; n < $2; n++)); do _tfdeploy; done; true",
    ),
    # zsh completes only in its line editor, so the functions of the completion system do nothing.
    "zsh": (
        "zsh -f -c",
        "compdef() { :; }; compadd() { :; }; _wanted() { :; }; _describe() { :; }; compset() { :; }; "
        ". {script}; words=(${(s: :)1}); [[ $1 != *' ' ]] || words+=(''); "
        "CURRENT=$#words PREFIX=$words[-1]; for ((n = 0; n < $2; n++)); do _tfdeploy; done; true",
    ),
    "fish": (
        "fish --no-config -c",
        "source {script}; for n in (seq $argv[3]); complete -C $argv[2] >/dev/null; end",
    ),
}
ALL_PARSERS = "from tfdeploy.cli.command import make_parser; make_parser()"


def main() -> None:
    args = options(__doc__, rounds=9)
    figures = Figures("completion", args.json)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {**os.environ, "HOME": name, "XDG_STATE_HOME": name, "LC_ALL": "C.UTF-8"}
        remember_names(folder / "tfdeploy", folder.resolve(), "hosts", HOSTS)

        def run(*argv: str) -> Spent:
            return spend(argv, env=env, cwd=folder)

        interpreter = in_turns(
            {
                code: lambda code=code: run(sys.executable, "-c", code)
                for code in ("0", ALL_PARSERS)
            },
            args.rounds,
        )
        cpu_ms = {
            code: 1000 * median(spent, lambda each: each.cpu_s)
            for code, spent in interpreter.items()
        }
        figures.add("an empty interpreter", cpu_ms["0"], "ms")
        figures.add("an interpreter with all parsers", cpu_ms[ALL_PARSERS], "ms")
        for shell in filter(shutil.which, SHELLS):
            script = folder / f"script.{shell}"
            script.write_text(make_script(shell), encoding="utf-8")
            command, program = PROGRAMS[shell]
            argv = [*command.split(), program.replace("{script}", str(script)), shell]
            for what, line in LINES.items():
                spent = in_turns(
                    {
                        count: lambda words=(*argv, line, count): run(*words)
                        for count in ("0", str(ANSWERS))
                    },
                    args.rounds,
                )
                idle, busy = (median(each, lambda run: run.cpu_s) for each in spent.values())
                answer_ms = 1000 * (busy - idle) / ANSWERS
                figures.add(f"{shell}: {what}", answer_ms, "ms", goal=GOAL_MS)


if __name__ == "__main__":
    main()
