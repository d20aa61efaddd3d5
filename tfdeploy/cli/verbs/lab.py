"""`tfdeploy lab`: a throw-away cluster on this machine. Options to values, one call of the lab, one
answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfdeploy import lab
from tfdeploy.cli.arguments.lab import HostFlags, LabFlags, UpFlags
from tfdeploy.cli.output import print_json, say
from tfdeploy.errors import UsageError

if TYPE_CHECKING:
    from tfdeploy.lab import Lab
    from tfdeploy.model.output.printed import LabAnswer, LabDownAnswer


def run(flags: LabFlags) -> int:
    """Carries one `lab` verb out. Raises TfdeployError."""
    if isinstance(flags, UpFlags):
        found = lab.up(
            flags.name,
            flags.kind,
            flags.count,
            rate=flags.rate,
            python=flags.python,
            shared_workdir=flags.shared_workdir,
            gpus=flags.gpus,
            sites=flags.sites,
            between=flags.between,
        )
        say(f"lab {found.name}: {len(found.hosts)} {found.kind} hosts are up")
        if found.kind == "isolated":
            say(
                f"next: `tfdeploy lab run --name {found.name} -- bash`: only from there its "
                "hosts are reached"
            )
        return _answer(flags, found, str(found.inventory))
    if flags.verb == "down":
        lab.down(flags.name)
        say(f"lab {flags.name} is gone")
        if flags.json:
            gone: LabDownAnswer = {"lab": flags.name, "ok": True}
            print_json(gone)
        return 0
    return _on_existing(flags, lab.load(flags.name))


def _on_existing(flags: LabFlags, found: Lab) -> int:
    if flags.verb == "run":
        return _run(found, flags.after or ())
    if flags.verb == "status":
        rows = [
            f"{row['host']}  {row['address']}:{row['port']}  {row['state']}"
            for row in found.status()
        ]
        return _answer(flags, found, "\n".join(rows))
    assert isinstance(flags, HostFlags)
    getattr(found, flags.verb)(flags.host)
    say(f"{flags.verb}: {flags.host}")
    return _answer(flags, found, "")


def _run(found: Lab, words: Sequence[str]) -> int:
    if not words:
        raise UsageError(
            "no command",
            where="lab run",
            next=f"tfdeploy lab run --name {found.name} -- tfdeploy inventory",
        )
    argv = found.operator(list(words))
    sys.stdout.flush()
    environment = {"TFDEPLOY_INVENTORY": str(found.inventory), **os.environ}
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror}", where="lab run") from error


def _answer(flags: LabFlags, found: Lab, text: str) -> int:
    if flags.json:
        answer: LabAnswer = {
            "lab": found.name,
            "kind": found.kind,
            "inventory": str(found.inventory),
            "hosts": found.status(),
        }
        print_json(answer)
    elif text:
        print(text)
    return 0
