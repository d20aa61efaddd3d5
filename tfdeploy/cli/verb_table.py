"""List the verbs of the command line and their descriptions."""

from __future__ import annotations

VERBS = {
    "init": "write a commented tfdeploy.yaml and inventory",
    "inventory": "print hosts, roles and settings as understood",
    "trust": "show the host keys of hosts not yet known and record them",
    "check": "test every host and every pair of hosts, and print what to fix",
    "sync": "copy code and data to every host",
    "setup": "make the Python environment on every host",
    "launch": "start a run: lock, probe, plan, sync, prepare, start, commit",
    "logs": "print the merged logs of a run",
    "status": "show the tasks of a run",
    "stop": "stop a run: TERM, grace, KILL, verify",
    "runs": "list runs",
    "report": "write one HTML page about a run",
    "compare": "show what differs between runs, and their results",
    "clean": "remove what no run needs any more",
    "audit": "show who did what on the hosts, and what is left there",
    "fetch": "copy checkpoints, files and logs of a run to this machine",
    "tensorboard": "show a run in TensorBoard, through SSH",
    "exec": "run a command on every host at once",
    "ssh": "open a shell on a host, with the inventory's settings",
    "lab": "start and stop a throw-away cluster on this machine",
    "docs": "print the reference of the two files",
    "completion": "print the script with which a shell completes command lines",
}
# {verb of another tool: the verb of tfdeploy to suggest, perhaps with flags}
OTHER_NAMES = {
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
# These verbs read no inventory and contact no host.
NO_FILES = ("completion", "docs", "init", "lab")
