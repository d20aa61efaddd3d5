"""Run `tfdeploy lab`: start, change and stop a throw-away cluster on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfdeploy import lab
from tfdeploy.cli.arguments.lab import HostFlags, LabFlags, UpFlags
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.errors import UsageError

if TYPE_CHECKING:
    from tfdeploy.lab import Lab
    from tfdeploy.model.output.printed import LabAnswer, LabDownAnswer


def run(flags: LabFlags) -> int:
    """Run one verb of `tfdeploy lab`. Raises TfdeployError."""
    if isinstance(flags, UpFlags):
        current_lab = lab.create_or_revive(
            flags.name,
            flags.kind,
            flags.count,
            rate=flags.rate,
            python=flags.python or _choose_python(flags.name),
            shared_workdir=flags.shared_workdir,
            gpus=flags.gpus,
            sites=flags.sites,
            between=flags.between,
        )
        print_message(
            f"lab {current_lab.name}: {len(current_lab.hosts)} {current_lab.kind} hosts are up"
        )
        if current_lab.kind == "isolated":
            print_message(
                f"next: `tfdeploy lab run --name {current_lab.name} -- bash` opens a shell that "
                "can reach the hosts; other programs on this machine cannot"
            )
        return _print_answer(flags, current_lab, str(current_lab.inventory))
    if flags.verb == "down":
        lab.down(flags.name)
        print_message(f"lab {flags.name} is removed")
        if flags.json:
            answer: LabDownAnswer = {"lab": flags.name, "ok": True}
            print_json(answer)
        return 0
    return _run_on_existing_lab(flags, lab.load(flags.name))


def _choose_python(name: str) -> str:
    """Return the Python of the lab's hosts: that of the existing lab, or one that has TensorFlow.

    Prints a note if that is not the interpreter of this process, or if no interpreter has
    TensorFlow.
    """
    if name in lab.names():
        return lab.load(name).state.python
    python = lab.find_tensorflow_python(os.environ)
    if python is None:
        print_message(
            f"no Python with TensorFlow was found, so the hosts get {sys.executable}; --python "
            "PATH names another Python"
        )
    elif python != sys.executable:
        print_message(f"the hosts get {python}, because tfdeploy's own Python has no TensorFlow")
    return python or sys.executable


def _run_on_existing_lab(flags: LabFlags, current_lab: Lab) -> int:
    if flags.verb == "run":
        return _run_as_operator(current_lab, flags.after_dashes)
    if isinstance(flags, HostFlags):
        getattr(current_lab, flags.verb)(flags.host)
        print_message(f"{flags.verb}: {flags.host}")
        return _print_answer(flags, current_lab, "")
    print_message(f"the lab's inventory: -i {current_lab.inventory}")
    rows = (
        f"{row['host']}  {row['address']}:{row['port']}  {row['state']}"
        for row in current_lab.status()
    )
    return _print_answer(flags, current_lab, "\n".join(rows))


def _run_as_operator(current_lab: Lab, command: Sequence[str] | None) -> int:
    """Replace this process by `command`, which runs as the lab's operator. Raises UsageError."""
    if not command:
        raise UsageError(
            "no command",
            where="lab run",
            next=f"`tfdeploy lab run --name {current_lab.name} -- tfdeploy inventory`",
        )
    argv = current_lab.operator_command(list(command))
    sys.stdout.flush()
    environment = {"TFDEPLOY_INVENTORY": str(current_lab.inventory), **os.environ}
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror}", where="lab run") from error


def _print_answer(flags: LabFlags, current_lab: Lab, text: str) -> int:
    if flags.json:
        answer: LabAnswer = {
            "lab": current_lab.name,
            "kind": current_lab.kind,
            "inventory": str(current_lab.inventory),
            "hosts": current_lab.status(),
        }
        print_json(answer)
    elif text:
        print(text)
    return 0
