"""Lists the keys of inventory and job file as data.

Validation accepts these keys, `tfdeploy docs` prints them, and `tfdeploy init` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tfdeploy.config import jobvalues, secret_sources, values
from tfdeploy.config.jobvalues import named_values_schema
from tfdeploy.config.schema import Key, Schema, allow_empty, mapping_schema
from tfdeploy.model.job import ASKED_LEVELS, MODES, STALL_ACTIONS
from tfdeploy.model.modes import ROLES, rules_of
from tfdeploy.text.placeholders import NAMES

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import ReferenceAnswer, ReferenceRow, TopicSection

_MODES_WITH_SLOTS = [mode for mode in MODES if rules_of(mode).takes_slots]
HOST = (
    Key(
        "address",
        "host name or IP address",
        "address: 192.0.2.10",
        values.address,
        "the host's name",
    ),
    Key("port", "port of sshd", "port: 22", values.port, "~/.ssh/config, else 22"),
    Key("user", "user name of the login", "user: ml", values.user, "~/.ssh/config, else you"),
    Key(
        "identity_file",
        "private key of the login",
        "identity_file: ~/.ssh/id_ed25519",
        values.local_path,
        "~/.ssh/config, the keys of ssh-agent, the default keys of ssh",
    ),
    Key(
        "known_hosts",
        "file of known host keys",
        "known_hosts: ~/.ssh/known_hosts",
        values.local_path,
        "~/.ssh/config, else ~/.ssh/known_hosts",
    ),
    Key(
        "jump",
        "jump host (ProxyJump); several with commas; none: connect directly",
        "jump: bastion.example.org",
        values.jump,
        "~/.ssh/config, else none",
    ),
    Key(
        "python",
        "interpreter of the training program: a name on PATH, or a path, which may begin with ~",
        "python: python3",
        values.python,
        "python3",
    ),
    Key(
        "workdir",
        "folder on the host that only tfdeploy uses",
        "workdir: ~/tfdeploy",
        values.host_path,
        "~/tfdeploy",
    ),
    Key(
        "ports",
        "range of TCP ports for the tasks of a run, and for the connection between its hosts",
        "ports: 2222-2299",
        values.ports,
        "2222-2299",
    ),
    Key(
        "gpus",
        "GPUs that tasks may use: auto (all that the host has), none, a count, or a list of "
        "numbers",
        "gpus: auto",
        values.gpus,
        "auto",
    ),
    Key(
        "slots",
        f"how many workers the host gets, in {', '.join(_MODES_WITH_SLOTS)}",
        "slots: 2",
        values.slots,
        "one for each GPU; one on a host without a GPU",
    ),
    Key(
        "advertise",
        "address that the other hosts connect to",
        "advertise: 10.0.0.7",
        values.address,
        "`address` if it is an IP address, else the address at which sshd was reached",
    ),
    Key(
        "bwlimit",
        "limit of what tfdeploy sends and receives on the host, in bytes a second in each "
        "direction",
        "bwlimit: 50M",
        values.rate,
        "no limit",
    ),
    Key(
        "reserve",
        "free space that a sync leaves on the disk of the workdir",
        "reserve: 5GiB",
        values.reserve,
        "nothing",
    ),
)


def _host_schema() -> Schema:
    """Return the JSON Schema of a host's keys, whose values may contain {name}."""
    schema = mapping_schema(HOST)
    for key in schema["properties"].values():
        key["pattern"] = "|".join(filter(None, (key.get("pattern"), r"\{name\}")))
        key["type"] = sorted({*key["type"], "string"})
    return schema


_HOST_SCHEMA = _host_schema()
_SPAN = r"\d{1,9}(-\d{1,9})?"
_NAMES_AND_RANGES = rf"^(?![-.])([A-Za-z0-9_.-]|\[{_SPAN}(,{_SPAN})*\])+$"
_ROLE_SCHEMA = {"type": ["string", "array", "null"], "items": {"type": ["string"]}}
INVENTORY = (
    Key(
        "defaults",
        "settings of all hosts; a host may override them",
        "defaults: {user: ml}",
        values.mapping_of("a mapping such as {user: ml}", _HOST_SCHEMA),
    ),
    Key(
        "hosts",
        "each host, or range of hosts, with its keys; {name} in a value stands for the host's name",
        'hosts:\n  n1: {address: 192.0.2.10}\n  gpu[03-10]: {address: "{name}.example.org"}',
        values.mapping_of(
            "a mapping of `name: keys`",
            named_values_schema(allow_empty(_HOST_SCHEMA), _NAMES_AND_RANGES),
        ),
    ),
    Key(
        "roles",
        "which hosts ps, worker, chief and evaluator may use",
        'roles:\n  ps: [n1]\n  worker: ["gpu[03-10]"]',
        values.mapping_of(
            "a mapping of `role: [hosts]`",
            named_values_schema(_ROLE_SCHEMA, f"^({'|'.join(ROLES)})$"),
        ),
        "the first host for ps or chief, in modes that have one; all others for workers",
    ),
)

JOB = (
    Key("name", "the job's name", "name: digits", values.name, "the folder's name"),
    Key(
        "inventory",
        "path of the inventory",
        "inventory: inventories/lab.yaml",
        values.text,
        "the file in inventories/, if there is only one",
    ),
    Key(
        "mode",
        f"how the tasks train together: {', '.join(MODES)}",
        "mode: async",
        values.one_of(*MODES),
        "none; without this key, give the mode to launch: `tfdeploy launch --mode async`",
    ),
    Key(
        "code",
        "folder of the program; every host gets a copy",
        "code: .",
        values.text,
        "the job file's folder",
    ),
    Key(
        "data",
        "data sets, sent to every host once. Each data set is `name: PATH` or `name: {...}` with "
        "these keys: path (a path here) or from (HOST:/PATH, on a host that has the data); split "
        "(none, or worker: each worker gets a part); others (whether the tasks of other roles get "
        "none or all of split data); via (auto or rsync)",
        "data:\n  digits: ./data/digits\n  images: {path: ./images, split: worker, others: all}",
        jobvalues.data,
        "none; without these keys, a data set has `split: none`, `others: none` and `via: auto`",
    ),
    Key(
        "keep",
        "folders of the program that outlive runs and releases",
        "keep: [checkpoints]",
        jobvalues.keep,
        "none",
    ),
    Key(
        "command",
        "the program and its arguments",
        'command: [python, train.py, "--steps=2000"]',
        jobvalues.command,
        "none; without this key, give the command to launch: `tfdeploy launch -- python train.py`",
    ),
    Key(
        "cwd",
        "the command starts in this folder of the code; `data` and `keep` do not depend on it",
        "cwd: src",
        jobvalues.cwd,
        "the code's top",
    ),
    Key(
        "flags",
        "flags that tfdeploy appends to the command: auto (the program's flags about its "
        "cluster), classic (--ps_hosts --worker_hosts --job_name --task_index), none (no flags)",
        "flags: auto",
        values.one_of("auto", "classic", "none"),
        f"auto in {' and '.join(mode for mode in MODES if rules_of(mode).takes_flags)}; in other "
        "modes, only flags whose meaning is certain",
    ),
    Key(
        "cluster",
        "which cluster is used if the program's source defines one: planned (the plan's cluster), "
        "program (the source's cluster)",
        "cluster: planned",
        values.one_of("planned", "program"),
        "planned",
    ),
    Key(
        "roles",
        "settings of each role: count or per_host (number of tasks), gpus (GPUs of each task), "
        "command (if it is not the job's command), as (the program's name for the role). "
        "`master: {}` means `chief: {as: master}`",
        "roles: {ps: {count: 2}, worker: {gpus: 1}}",
        jobvalues.roles,
        "the mode's",
    ),
    Key(
        "env",
        "environment variables of every task",
        'env: {TF_CPP_MIN_LOG_LEVEL: "1"}',
        jobvalues.env,
        "none",
    ),
    Key(
        "secrets",
        "environment variables whose values are never shown: NAME (the value is in your "
        "environment) or NAME: SOURCE. A source is {file: PATH}, {command: [WORD, ...]} (run "
        "without a shell, for at most 30 s), {environment: OTHER_NAME} or env",
        "secrets: [WANDB_API_KEY, {HF_TOKEN: {file: ~/.hf/token}}, {DB: {command: [pass, show, "
        "db]}}]",
        secret_sources.secrets,
        "none",
    ),
    Key(
        "setup",
        "the Python environment that `tfdeploy setup` makes on every host",
        "setup: {requirements: requirements.txt, wheels: ./wheels}",
        keys=(
            Key(
                "requirements",
                "file of packages in the format of pip; files that it includes with -r or -c are "
                "sent too",
                "requirements: requirements.txt",
                values.text,
                "none",
                "setup_requirements",
            ),
            Key(
                "wheels",
                "folder of wheels. Every host gets it, and installs packages only from this folder",
                "wheels: ./wheels",
                values.text,
                "none",
                "setup_wheels",
            ),
        ),
    ),
    Key(
        "ready",
        "when a task counts as up",
        "ready: {after: 5s, timeout: 120s}",
        keys=(
            Key(
                "after",
                "a task that never loads TensorFlow counts as up after this time",
                "after: 5s",
                values.seconds,
                "5s",
                "ready_after_s",
            ),
            Key(
                "timeout",
                "the launch fails if a task is not up after this time",
                "timeout: 120s",
                values.seconds,
                "120s",
                "ready_timeout_s",
            ),
        ),
    ),
    Key(
        "finish",
        "what happens to tasks that still run when the run has succeeded",
        "finish: {grace: 60s}",
        keys=(
            Key(
                "grace",
                "once the run has succeeded (in most modes, once the chief has succeeded), a "
                "worker that prints nothing for this time is stopped",
                "grace: 60s",
                values.seconds,
                "60s",
                "finish_grace_s",
            ),
        ),
    ),
    Key(
        "restart",
        "starting failed tasks again",
        "restart: {max: 3, backoff: [1s, 60s], wait: 1h}",
        keys=(
            Key(
                "max",
                "restarts of a task; ten minutes without a failure reset the count; 0: no restart. "
                "If this key is left out, a task that fails twice with the same error before its "
                "first step does not restart",
                "max: 3",
                values.whole_number(0, 1000),
                "3",
                "restart_max",
            ),
            Key(
                "backoff",
                "first and longest pause before a restart; after each attempt shorter than 10 s, "
                "the pause doubles",
                "backoff: [1s, 60s]",
                jobvalues.backoff,
                "[1s, 60s]",
                "restart_backoff_s",
            ),
            Key(
                "wait",
                "the run fails if a host with tasks is lost for longer than this",
                "wait: 1h",
                values.seconds,
                "1h",
                "restart_wait_s",
            ),
        ),
    ),
    Key(
        "stall",
        "what to do about a task that stands still",
        "stall: {after: 5m, action: report}",
        keys=(
            Key(
                "after",
                "a task is stalled after this time without output, CPU use and traffic; 0s: never",
                "after: 5m",
                values.seconds,
                "5m",
                "stall_after_s",
            ),
            Key(
                "action",
                "what to do if a task stalls: report (show the reason), restart (also end the task "
                "that causes the stall, which then counts as failed)",
                "action: report",
                values.one_of(*STALL_ACTIONS),
                "report",
                "stall_action",
            ),
        ),
    ),
    Key(
        "stop",
        "how a run is stopped",
        "stop: {grace: 20s}",
        keys=(
            Key(
                "grace",
                "time for tasks to end after TERM; then they get KILL",
                "grace: 20s",
                values.seconds,
                "20s",
                "stop_grace_s",
            ),
        ),
    ),
    Key(
        "logs",
        "logs on the hosts",
        "logs: {max: 1GiB}",
        keys=(
            Key(
                "max",
                "limit of each task's log on its host; the oldest lines are removed",
                "max: 1GiB",
                values.size_bytes,
                "1GiB",
                "logs_max_bytes",
            ),
        ),
    ),
    Key(
        "compat",
        "running TensorFlow 1 programs on TensorFlow 2: auto (if the program needs it), v1 "
        "(always), none (never)",
        "compat: auto",
        values.one_of("auto", "v1", "none"),
        "auto",
    ),
    Key(
        "protect",
        "how the run's ports are protected: firewall (only the run's user on the run's hosts can "
        "connect), peers (all users of the run's hosts can), none (everybody can), auto (on each "
        "host, the strictest of these levels that works)",
        "protect: auto",
        values.one_of(*ASKED_LEVELS),
        "auto",
    ),
    Key(
        "metrics",
        "numbers to read from the logs, each as name: regular expression with one group",
        r"metrics: {step: 'step[ =:]+(\d+)'}",
        jobvalues.metrics,
        "step and loss",
    ),
)


PLACEHOLDERS = {
    **{f"{{{name}}}": text for name, text in NAMES.items()},
    "{data.NAME}": "path of a data set on the host, or of the task's part if the data set is split",
    "{keep.NAME}": "absolute path of a `keep` folder",
}


def leaf_keys(keys: tuple[Key, ...], prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield (dotted name, key) for each key that has a value and no further keys below it."""
    for key in keys:
        if key.keys:
            yield from leaf_keys(key.keys, f"{prefix}{key.name}.")
        else:
            yield prefix + key.name, key


def reference_rows() -> ReferenceAnswer:
    """Return the reference as data that programs can read.

    The form is {"inventory" | "host" | "job": [{"key", "text", "default", "example"}]}.
    """
    return {"inventory": _table_rows(INVENTORY), "host": _table_rows(HOST), "job": _table_rows(JOB)}


def _table_rows(table: tuple[Key, ...]) -> list[ReferenceRow]:
    return [
        {"key": dotted, "text": key.text, "default": key.default, "example": key.example}
        for dotted, key in leaf_keys(table)
    ]


def reference_sections() -> dict[str, list[TopicSection]]:
    """Return {"inventory" or "job": the sections of the reference of that file}."""
    placeholders = "PLACEHOLDERS  in command and env; {{ and }} stand for braces"
    rows = reference_rows()
    return {
        "inventory": [
            {"title": "INVENTORY  inventories/*.yaml", "rows": rows["inventory"]},
            {
                "title": "A HOST  keys of each host in `hosts:`; `defaults:` may have them too",
                "rows": rows["host"],
            },
        ],
        "job": [
            {
                "title": "JOB  tfdeploy.yaml; paths are relative to the file",
                "rows": rows["job"],
            },
            {"title": placeholders, "rows": name_and_text_rows(PLACEHOLDERS)},
        ],
    }


def name_and_text_rows(texts: Mapping[str, str]) -> list[ReferenceRow]:
    """Return rows that have only a name and a text."""
    return [
        {"key": name, "text": text, "default": "", "example": ""} for name, text in texts.items()
    ]


def sections_text(sections: Iterable[TopicSection], width: int = 16) -> str:
    """Return the sections as plain text. `width`: the width of the column of keys."""
    lines = []
    for section in sections:
        lines.append(section["title"])
        for row in section["rows"]:
            default = f"; default: {row['default']}" if row["default"] else ""
            lines.append(f"  {row['key']:<{width}} {row['text']}{default}")
            lines += [f"  {'':<{width}}     {line}" for line in row["example"].splitlines()]
        lines.append("")
    return "\n".join(lines)
