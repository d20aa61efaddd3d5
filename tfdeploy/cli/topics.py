"""Compose the text of each topic of `tfdeploy docs TOPIC` from the tables that hold the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.docs import TOPICS
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import unknown_choice_error
from tfdeploy.config.reference import name_and_text_rows, reference_sections
from tfdeploy.errors import EXIT_CODES
from tfdeploy.model.modes import RULES, ModeRules

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import TopicSection

# {environment variable: its effect}. The variables of common options are not here, because the
# declarations of these options describe them.
_READ_HERE = {
    "TFDEPLOY_LAB_NAME": "--name of `tfdeploy lab`",
    "TFDEPLOY_NO_COLOR": "the same as TFDEPLOY_COLOR=never",
    "NO_COLOR": "no colours, unless --color says otherwise",
    "TERM": "if the value is dumb, there are no colours and no dashboard",
    "COLUMNS": "the width of --help",
    "SHELL": "the default shell of `tfdeploy completion`",
    "HOME": "the folder that ~ stands for",
    "PATH": "where ssh, rsync, git and ansible-inventory are found; relative folders do not count",
    "XDG_STATE_HOME": "the records of runs are in its subfolder tfdeploy/; default: ~/.local/state",
    "XDG_RUNTIME_DIR": "the folder for the file from which the browser reads the address of --open",
    "TMPDIR": "the folder for temporary files",
    "BROWSER": "which browser --open starts",
    "SSH_AUTH_SOCK": "the ssh-agent, unless ~/.ssh/config names another one",
    "SLURM_JOB_NODELIST": "the hosts of `-i @slurm`, inside an allocation of Slurm",
    "SUDO_UID": "the user who called sudo; files of this user are trusted too",
    "VIRTUAL_ENV": "the active Python environment; hosts of a lab may use its Python",
    "LD_LIBRARY_PATH": "passed on to rsync",
    "NAME": "every variable that the job's `secrets:` names",
}
_READ_ON_A_HOST = {
    "PATH": "where programs are found; the folder of the job's interpreter comes first",
    "PYTHONPATH": "passed on to the program",
    "TMPDIR": "the folder for temporary files, as are TEMP and TMP",
    "SSH_CONNECTION": "the address by which other hosts may reach this one",
    "SSH_USER_AUTH": "tells which key was used to log in; the audit log records it",
    "http_proxy": "a proxy. `check` and the plan list all proxy variables that are set; "
    "connections within the cluster do not use a proxy",
}
_SET_FOR_TASKS = {
    "TF_CONFIG": "the cluster and the task, in modes with TensorFlow and several processes",
    "CUDA_VISIBLE_DEVICES": "the task's GPUs; empty for a ps",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID, so that GPUs have the same numbers as in nvidia-smi",
    "PYTHONUNBUFFERED": "has the value 1",
    "PYTHONPATH": "for programs of TensorFlow, the first folder is tfdeploy's runtime",
    "PWD": "the folder in which the command starts",
    "TF_GRPC_REUSE_PORT": "true for tasks with a port, which tfdeploy has reserved",
    "GRPC_FAIL_FAST": "use_caller in mode coordinator",
    "no_proxy": "the addresses of the cluster, if the host or the job sets a proxy; NO_PROXY and "
    "no_grpc_proxy have the same value",
    "RANK": "set in mode plain, like WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, "
    "MASTER_PORT and the other variables that torchrun sets",
    "TFDEPLOY_DATA_<NAME>_PART": "the number of the task's part of a split data set, from 0",
    "TFDEPLOY_DATA_<NAME>_PARTS": "the number of parts of the split data set",
    "TFDEPLOY_TASK_RUN_ID": "the run",
    "TFDEPLOY_TASK_JOB": "the job",
    "TFDEPLOY_TASK_ROLE": "the role, such as worker",
    "TFDEPLOY_TASK_INDEX": "the number in the role, from 0",
    "TFDEPLOY_TASK_HOST": "the host's name in the inventory",
    "TFDEPLOY_TASK_ATTEMPT": "the number of the attempt: 1 at first, and one more after each "
    "restart",
}
_INTERNAL = {
    "TFDEPLOY_TASK_MODE": "the job's mode, which tfdeploy's runtime reads",
    "TFDEPLOY_TASK_TRAITS": "what the runtime changes in the program",
    "TFDEPLOY_TASK_COMPAT": "whether a program of TensorFlow 1 runs on TensorFlow 2",
    "TFDEPLOY_TASK_CLUSTER": "whether the plan's cluster replaces the one in the program's source",
    "TFDEPLOY_TASK_TF_CONFIG": "the planned TF_CONFIG",
    "TFDEPLOY_TASK_WRITTEN_HOST": "the task's host name or address in the program's source",
    "TFDEPLOY_TASK_LOG": "the task's log",
    "TFDEPLOY_TASK_FOLDER": "the folder of the run on the host",
    "TFDEPLOY_TENSORBOARD_PATH": "the secret path of TensorBoard",
    "TFDEPLOY_DESCRIPTORS": "open ports that one process of tfdeploy passes to the next",
    "TFDEPLOY_LAB": "marks the processes of a lab",
}


def topic_sections(topic: str) -> list[TopicSection]:
    """Return what `tfdeploy docs TOPIC` prints: a whole topic, or the rows of one key in all
    topics.

    Raises UsageError if `topic` is neither one of TOPICS nor a key.
    """
    if topic in TOPICS:
        return _whole_topic(topic)
    sections = [section for each in TOPICS for section in _whole_topic(each)]
    keys = [row["key"].partition(".")[0] for section in sections for row in section["rows"]]
    chosen: list[TopicSection] = []
    for section in sections:
        rows = [row for row in section["rows"] if f"{row['key']}.".startswith(f"{topic}.")]
        if rows:
            chosen.append({"title": section["title"], "rows": rows})
    if not chosen:
        known = (*TOPICS, "or a key, such as stall")
        raise unknown_choice_error(topic, known, "tfdeploy docs", further=keys)
    return chosen


def _whole_topic(topic: str) -> list[TopicSection]:
    if topic == "modes":
        return _mode_sections()
    if topic == "exit-codes":
        codes = {str(code): text for code, text in EXIT_CODES.items()}
        return [_section("EXIT CODES  if several apply, the first of: 130, 2, 5, 4, 3, 1", codes)]
    if topic != "environment":
        return reference_sections()[topic]
    options = {
        f"TFDEPLOY_{each.name.upper()}": f"the same as {each.metadata['names'][-1]}: "
        f"{each.metadata['options']['help']}"
        for each in fields(CommonFlags)
        if each.metadata
    }
    return [
        _section("READ ON THIS MACHINE  by tfdeploy", options | _READ_HERE),
        _section("READ ON A HOST  by tfdeploy, in the login environment", _READ_ON_A_HOST),
        _section(
            "SET FOR TASKS  the job's `env` may replace some of them; the others are refused there",
            _SET_FOR_TASKS,
        ),
        _section("BETWEEN TFDEPLOY'S PROCESSES  do not set these", _INTERNAL),
    ]


def _section(title: str, text_by_name: dict[str, str]) -> TopicSection:
    return {"title": title, "rows": name_and_text_rows(text_by_name)}


def _mode_sections() -> list[TopicSection]:
    texts: dict[str, Callable[[ModeRules], str]] = {
        "MODES  set with `mode` in the job file, or with --mode": lambda rules: rules.program,
        "ROLES": lambda rules: (
            f"{_listing(rules.usable_roles)}; needed: {_listing(rules.required_roles)}"
        ),
        "RESTARTS": lambda rules: (
            f"if a {' or '.join(rules.breaks)} dies, all tasks of {_listing(rules.gang)} restart; "
            "if another task dies, only that task restarts"
            if rules.breaks
            else "only the task that died restarts"
        ),
        "DEATHS  what TensorFlow does when a task dies, without tfdeploy": lambda rules: (
            rules.on_death
        ),
    }
    return [
        _section(title, {mode: describe(rules) for mode, rules in RULES.items()})
        for title, describe in texts.items()
    ]


def _listing(names: Iterable[str]) -> str:
    return ", ".join(names)
