"""Recognise the files that this machine has written, in a workdir that several hosts may share.

These functions have a module of their own, so that a session that only locks a job need not import
the modules about runs.
"""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.host import atomic, boot_id
from tfdeploy.agent.ownership import agent_name

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import FileOrigin


def boot_and_container_id() -> str:
    """Return an id of the current boot of this machine or container. Cloned machines have the same
    hostname and machine id, but not the same boot."""
    # The containers on a machine all have the boot id of the machine. They differ in their process
    # namespaces, so the namespace is a part of the id.
    sees = os.stat("/proc/self/ns/pid").st_ino
    return agent_name({"boot": boot_id().encode("ascii"), "sees": b"%d" % sees})[:16]


def own_file_origin() -> FileOrigin:
    """Return the fields that this machine writes into a file, so that `is_own_file` later
    recognises the file as written by this machine."""
    return {"boot_id": boot_id(), "hostname": os.uname().nodename, "place": boot_and_container_id()}


def read_origin(path: str) -> FileOrigin:
    """Return what a file says about the machine that wrote it (see `own_file_origin`). Fields that
    the file lacks are left out. Raises OSError."""
    fields = atomic.read_json(path) or {}
    names = ("boot_id", "hostname", "place")
    return {  # type: ignore[return-value]
        name: fields[name] for name in names if isinstance(fields.get(name), str)
    }


def is_own_file(file_origin: FileOrigin, host: str, inventory_name: str) -> bool:
    """Return whether this machine wrote a file that belongs to the host `host`. `file_origin`: what
    the file says about the machine that wrote it (see read_origin). `inventory_name`: this
    machine's name in the inventory of the session, or "" if the session did not send it."""
    boot, is_same_boot = file_origin.get("place"), file_origin.get("boot_id") == boot_id()
    if boot == boot_and_container_id():
        return True
    if boot and is_same_boot:
        return False  # another container on this machine wrote it
    if "hostname" not in file_origin:
        return is_same_boot
    return file_origin["hostname"] == os.uname().nodename and inventory_name in ("", host)
