"""Check what must be true for any inventory or job file, valid or not, and for the plan and the
output that tfdeploy derives from the file.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from support.fuzz.seeds import Kind
from tfdeploy.cli.main import main
from tfdeploy.cli.verbs import inventory as view
from tfdeploy.config import load_inventory_file, load_job
from tfdeploy.config.inventory import InventoryFile
from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan, plan_from_json, plan_to_json, without_ssh_settings
from tfdeploy.model.plan_files import plan_from_file, plan_to_file, read_untrusted_plan
from tfdeploy.planning.describe import describe_plan
from tfdeploy.planning.host_parts import host_parts, shared_part

# The most characters in one part of an error message.
MOST_CHARS = 1200
# The sequences that YAML treats as line breaks.
_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_UNPRINTED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff]"
)
# Texts of errors that concern the whole file and therefore name no line.
WHOLE_FILE = ("is empty", "holds only comments", "too large for an inventory")


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """Yield a folder in memory if the machine has /dev/shm, otherwise on disk.

    Memory is preferred, because it takes longer to write a file to disk than to read it as an
    inventory.
    """
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


def read_or_refuse(kind: Kind, path: Path) -> InventoryFile | Job | None:
    """Return the content of the file. If tfdeploy refuses the file, check the error and return
    None.
    """
    try:
        return (
            load_inventory_file(path)
            if kind == "inventory"
            else load_job(path, environ={"HOME": "/home/me"})
        )
    except UsageError as error:
        check_refusal(error, path)
        return None


def check_refusal(error: TfdeployError, path: Path) -> None:
    assert error.exit_code == 2
    assert error.what and error.next and error.where, vars(error)
    assert all(len(part) <= MOST_CHARS for part in (error.what, error.where, error.next)), [
        error.what[:200],
        error.where[:200],
    ]
    json.dumps(error.as_json()).encode()
    name, _, rest = error.where.removeprefix(str(path.parent) + "/").partition(":")
    assert name == path.name, error.where
    if not any(words in error.what for words in WHOLE_FILE):
        line = int(rest.partition(":")[0])
        assert 1 <= line <= count_lines(path.read_bytes()), (error.where, error.what)


def count_lines(content: bytes) -> int:
    text = content.decode("utf-8-sig", "replace")
    return len(_BREAKS.split(text))


def check_inventory(understood: InventoryFile, again: Path) -> None:
    """Check that the output of `tfdeploy inventory`, written to the file `again`, reads as the same
    inventory.
    """
    inventory = understood.inventory
    json.dumps(view.inventory_as_json(inventory, understood))
    view.list_setting_rows(inventory, understood)
    hosts = {host.name: _settings(host) for host in inventory.hosts}
    said = {"hosts": hosts, "roles": inventory.roles} if inventory.roles else {"hosts": hosts}
    # JSON that is read as YAML must not contain \u escapes for surrogate pairs, which YAML does not
    # support.
    again.write_text(json.dumps(said, ensure_ascii=False))
    assert _without_places(load_inventory_file(again).inventory) == _without_places(inventory)


def _settings(host: Host) -> dict[str, object]:
    fields = {
        key: value
        for key, value in asdict(host).items()
        if value is not None and key not in ("name", "source", "places")
    }
    if host.address == host.name:
        # The default address is the host's name, which may be a name of ~/.ssh/config that is not a
        # valid address.
        del fields["address"]
    low, high = host.ports
    return {**{key: _escaped(value) for key, value in fields.items()}, "ports": f"{low}-{high}"}


def _escaped(value: object) -> object:
    """Return the setting with doubled braces, because a host's settings may contain placeholders
    such as {name}.
    """
    return value.replace("{", "{{").replace("}", "}}") if isinstance(value, str) else value


def _without_places(inventory: Inventory) -> Inventory:
    return replace(
        inventory,
        source="",
        notes=(),
        hosts=tuple(replace(host, source="") for host in inventory.hosts),
    )


def check_plan(plan: Plan) -> None:
    """Check that a plan can be read back from each of its written forms, and that the hosts' copy
    is valid.
    """
    said = plan_to_json(plan)
    assert plan_from_json(json.loads(json.dumps(said))) == plan
    assert plan_from_file(json.dumps(plan_to_file(plan)).encode()) == plan
    read_untrusted_plan(
        json.dumps(plan_to_file(without_ssh_settings(plan))).encode(),
        plan.run,
        plan.job,
        plan.metrics,
    )
    host_parts(plan, {})
    shared_part(plan)
    describe_plan(plan)


def check_command_line(args: list[str]) -> None:
    """Check that the exit code is 0 or 2, and that there is no traceback and no unprintable output.

    With --json, the error must match its schema.
    """
    for more in ([], ["--json"]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([args[0], *more, *args[1:]])
        assert code in (0, 2), (args, code, err.getvalue())
        assert "Traceback" not in err.getvalue()
        unprintable = _UNPRINTED.search(out.getvalue() + err.getvalue())
        assert unprintable is None, (args, unprintable)
        if more:
            answer = json.loads(out.getvalue())
            assert code == 0 or answer["error"]["code"] == 2
