"""How far this machine has seen the audit log of each host: an end that is cut off there shows here.

One small file per host. A failed write raises nothing: `audit` must also work with a full or read-only home.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from tfdeploy.machine.private_files import make_private_folder, write_private_file
from tfdeploy.model.audit_chain import Tail


class AuditTails:
    def __init__(self, root: Path) -> None:
        self.root = root / "audit"

    def path(self, host_key: str, workdir: str, hostname: str) -> Path:
        """The file about the log of that machine in that workdir, on the host with that key: its address may change."""
        return self.root / hashlib.sha256(f"{host_key} {hostname} {workdir}".encode(errors="surrogateescape")).hexdigest()[:32]

    def read(self, path: Path) -> Tail | None:
        try:
            said = json.loads(path.read_bytes())
            return Tail(int(said["n"]), str(said["hash"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def forget(self, host_key: str, workdir: str, hostname: str) -> None:
        """Forget a log that this machine has had removed."""
        with contextlib.suppress(OSError):
            self.path(host_key, workdir, hostname).unlink()

    def save(self, path: Path, tail: Tail) -> None:
        with contextlib.suppress(OSError):
            make_private_folder(self.root)
            write_private_file(path, json.dumps({"n": tail.n, "hash": tail.hash}))
