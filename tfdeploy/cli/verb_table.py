"""The verbs of the command line. Only a table: both the parser and the flags read it."""

from __future__ import annotations

VERBS = {
    "init": "write a commented tfdeploy.yaml and inventory",
    "inventory": "print hosts, roles and settings as understood",
    "trust": "show the host keys of hosts not yet known and record them",
    "check": "preflight of every host and between every pair of hosts",
    "sync": "code and data to every host",
    "setup": "the Python environment on every host",
    "launch": "start a run: lock, probe, plan, sync, prepare, start, commit",
    "logs": "merged logs of a run",
    "status": "the tasks of a run",
    "stop": "TERM, grace, KILL, verify",
    "runs": "runs so far",
    "report": "one HTML page about a run",
    "compare": "what differs between runs, and what came of it",
    "clean": "removes what no run needs any more",
    "audit": "who did what on the hosts, and what is left there",
    "fetch": "checkpoints and logs back to this machine",
    "tensorboard": "TensorBoard on a run's files, through SSH",
    "exec": "a command on every host at once",
    "ssh": "a shell on a host, with the inventory's settings",
    "lab": "a throw-away cluster on this machine",
    "docs": "the reference of the two files",
}
OTHER_NAMES = {  # verb of another tool -> what to type here
    "attach": "status --watch",
    "cancel": "stop",
    "doctor": "check",
    "down": "stop",
    "help": "--help",
    "kill": "stop",
    "ls": "runs",
    "ps": "status",
    "run": "launch",
    "start": "launch",
    "submit": "launch",
    "top": "status",
    "uninstall": "clean --everything",
    "up": "launch",
    "watch": "status --watch",
}
NO_FILES = ("docs", "init", "lab")  # verbs that read no inventory and ask no host
