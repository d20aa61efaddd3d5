"""Compose the end of `tfdeploy VERB --help`, after the options: examples, exit codes, variables."""

from __future__ import annotations

import textwrap

from tfdeploy.cli.verb_table import NO_FILES
from tfdeploy.errors import EXIT_CODES

# Each line is a command line and what it does, with two or more spaces between them.
EXAMPLES = """
tfdeploy init  write both files; on a terminal, ask for what the program in the folder does not show
tfdeploy init --hosts 'ml@gpu[01-08]' --mode sync  ask nothing, and name eight hosts
tfdeploy inventory  show what was understood, and the line of each setting
tfdeploy inventory -i hosts.ini --output yaml  print another tool's inventory in tfdeploy's format
tfdeploy trust  show new keys, ask, and record them
tfdeploy trust --renew n2  replace the changed key of one host
tfdeploy check  find problems before the first launch
tfdeploy check --deep --json  also measure the network; print JSON for a script
tfdeploy sync  send code and data
tfdeploy sync --dry-run  only show what would be sent
tfdeploy setup  make the environment on every host
tfdeploy setup -v --limit n1  make it on one host, and show the output of pip
tfdeploy launch --dry-run  only show the plan
tfdeploy launch --wait -- python train.py --lr 0.1  run another command, and stay until the run ends
tfdeploy logs -f --task worker:0  follow one task of the newest run
tfdeploy logs --since 10m --grep 'loss|Error'  print recent lines that match
tfdeploy status  show the tasks of the newest run
tfdeploy status --watch  open the dashboard
tfdeploy stop  stop the live run of this job
tfdeploy stop digits-20261121 --grace 2m  stop a run by its id, with more time to save
tfdeploy runs  list the runs of this job
tfdeploy runs --all --state failed,lost --since 2d  list recent failures of all jobs
tfdeploy report --open  open a report of the newest run in the browser
tfdeploy report digits-20261121 --to run.html  write a report of a run, by its id
tfdeploy compare digits-20261121 digits-20261122  show what differs, and the results
tfdeploy compare digits-20261121 digits-20261122 --to runs.html \
 also write a page with the curves of both
tfdeploy clean --dry-run  only show what would be removed
tfdeploy clean --older 30d --data -y  remove old runs and data sets without a question
tfdeploy audit  check all runs on the hosts
tfdeploy audit --json  print the same as JSON for a script
tfdeploy fetch --keep  copy the newest checkpoints here
tfdeploy fetch digits-20261121 --logs --to logs  copy the complete logs of a run
tfdeploy tensorboard --open  open TensorBoard for the newest run in the browser
tfdeploy tensorboard digits-20261121 --port 6006  serve a run, by its id, at a port of your choice
tfdeploy exec -- nvidia-smi  run a program on every host; equal outputs are printed once
tfdeploy exec --limit worker -- 'df -h ~ | tail -1'  give a line to the shell of some hosts
tfdeploy ssh n1  open a shell on n1
tfdeploy ssh n1 -- df -h  run one command on n1
tfdeploy lab up 3  start three hosts on this machine
tfdeploy lab up 4 --kind isolated --rate 100mbit  start hosts, each with its own network
tfdeploy lab run -- tfdeploy launch --wait  run a command that reaches the hosts
tfdeploy lab run -- bash  open a shell that reaches the hosts
tfdeploy lab status  show the hosts, and the path of the inventory
tfdeploy lab status --name second  show another lab
tfdeploy lab cut n2  disconnect a host
tfdeploy lab cut n2 --name second  disconnect a host of another lab
tfdeploy lab heal n2  connect a host again
tfdeploy lab heal n2 --name second  connect a host of another lab again
tfdeploy lab kill n2  power a host off
tfdeploy lab kill n2 --name second  power off a host of another lab
tfdeploy lab boot n2  power a host on again
tfdeploy lab boot n2 --name second  power on a host of another lab again
tfdeploy lab down  remove the lab
tfdeploy lab down --name second  remove another lab
tfdeploy completion bash  print the script for bash
tfdeploy completion fish  print the script for fish
tfdeploy docs  print the keys of both files, and the placeholders
tfdeploy docs exit-codes  print one topic
"""
_MOST_EXAMPLES = 4
_VARIABLES = "TFDEPLOY_<OPTION> for a common option, such as TFDEPLOY_INVENTORY; NO_COLOR"
_LAB_VARIABLES = "TFDEPLOY_LAB_NAME and TFDEPLOY_JSON, for --name and --json; XDG_STATE_HOME"


def examples_of(prog: str) -> list[list[str]]:
    """Return [command line, what it does] for each example of a verb."""
    lines = [line for line in EXAMPLES.splitlines() if f"{line} ".startswith(f"{prog} ")]
    return [line.split("  ", 1) for line in lines]


def exit_codes_of(verb: str) -> list[int]:
    """Return the exit codes that a verb may have."""
    excluded = [] if verb == "stop" else [5]
    if verb in (*NO_FILES, "inventory"):
        excluded += [4] if verb == "lab" else [1, 3, 4]
    return [code for code in EXIT_CODES if code not in excluded]


def describe_verb(prog: str, width: int) -> str:
    """Return the text at the end of a command's help.

    `prog`: the command, such as "tfdeploy stop". For "tfdeploy" alone, the text is "".
    """
    verb = "".join(prog.split()[1:2])
    if not verb:
        return ""
    codes = "; ".join(f"{code} {EXIT_CODES[code]}" for code in exit_codes_of(verb))
    variables = _LAB_VARIABLES if verb == "lab" else _VARIABLES
    lines = ["", "examples:"]
    for command, text in examples_of(prog)[:_MOST_EXAMPLES]:
        lines += [f"  {command}", f"      {text}"]
    for title, paragraph in (
        ("exit codes", codes),
        ("environment", f"{variables} (`tfdeploy docs environment` lists all)"),
    ):
        lines += ["", *textwrap.wrap(f"{title}: {paragraph}", width, subsequent_indent="  ")]
    return "\n".join(lines) + "\n"
