"""List the verbs of the command line and their descriptions."""

from __future__ import annotations

VERBS = {
    "init": "write a commented tfdeploy.yaml and inventory",
    "inventory": "print the hosts, roles and settings that the inventory gives",
    "trust": "show the host keys that are not known yet, and record them",
    "check": "test every host and every pair of hosts, and print what to fix",
    "sync": "copy code and data to every host",
    "setup": "make the Python environment on every host",
    "launch": "start a run: lock, probe, plan, sync, prepare, start, commit",
    "logs": "print the merged logs of a run",
    "status": "show the tasks of a run",
    "stop": "stop a run, and verify that no process of it is left",
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
    "docs": "print the reference of the inventory and the job file",
    "completion": "print the script with which a shell completes command lines",
}
_OTHER_NAMES = {
    "launch": "deploy run start submit train up",
    "launch --dry-run": "plan",
    "status": "ps top",
    "status --watch": "attach dashboard watch",
    "runs": "list ls",
    "logs": "tail",
    "stop": "cancel down kill",
    "check": "doctor ping",
    "inventory": "hosts",
    "sync": "cp push rsync",
    "fetch": "dl download pull",
    "setup": "install",
    "ssh": "shell",
    "clean --everything": "purge uninstall",
    "--help": "help",
}
# {verb of another tool: the verb of tfdeploy to suggest, perhaps with flags}
OTHER_NAMES = {name: verb for verb, names in _OTHER_NAMES.items() for name in names.split()}
# The verbs that read no inventory and contact no host.
NO_FILES = ("completion", "docs", "init", "lab")
