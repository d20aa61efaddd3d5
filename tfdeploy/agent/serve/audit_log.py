"""Writes the audit log of this host, .audit/<hostname>/log.jsonl: one JSON object per line for each
action of an operator.

Only verbs that are audited load this module. The control machine reads the log
(model/answers/audit.py). A log that has reached MOST_BYTES is renamed to log.1.jsonl, and replaces
the older log of that name.
"""

from __future__ import annotations

import binascii
import errno
import os
import sys
import time
from hashlib import sha256

from tfdeploy import __version__
from tfdeploy.agent import json_text, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional, Tuple
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError, is_safe_name
from tfdeploy.agent.host import reserved_space, user_name
from tfdeploy.agent.host.atomic import append_line, read_start
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.ownership import check_owners

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import AuditEntry

MOST_BYTES = 1 << 20  # size in bytes at which the log is renamed
LOCK_S = 10.0  # how long to wait for the log's lock
_MOST_TEXT = 200  # greatest length of one value in an entry, in characters
_MOST_SECRETS = 100  # an entry names at most this many secrets


def record_action(call: Call, verb: str, outcome: str) -> None:
    """Write one entry for an action of this session's operator. If the entry cannot be written, the
    verb still succeeds: the failure is reported on standard error, and the session's next entry
    says how many entries are missing."""
    context = call.context
    entry = _make_entry(call, verb, outcome)
    done = (verb, entry["job"], entry["run"], outcome)
    if done in context.recorded_actions:
        return
    if context.unrecorded_actions:
        entry["missed"] = context.unrecorded_actions
    try:
        append_entry(context.workdir, entry)
        context.recorded_actions.append(done)
        context.unrecorded_actions = 0
    except (OSError, VerbError) as error:
        context.unrecorded_actions += 1
        sys.stderr.write(
            "tfdeploy agent: cannot record this %s in the audit log: %s\n" % (verb, error)
        )


def append_entry(workdir: str, entry: AuditEntry) -> None:
    """Append the entry to the log, by one write under a lock. A session that lost the answer to a
    command repeats the command. Therefore nothing is appended if the last entry records the same
    command. If OSError is raised, nothing was written."""
    folder = _log_folder(workdir)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with _acquire_lock(folder):
        path, old = os.path.join(folder, layout.AUDIT_LOG), os.path.join(folder, layout.AUDIT_OLD)
        content = _read_log(path)
        if len(content) >= MOST_BYTES:
            os.rename(path, old)
            content = b""
        complete, _, torn_line = content.rpartition(b"\n")
        if _is_repetition(entry, complete.rpartition(b"\n")[2]):
            return
        # After a power cut, the log may end with an incomplete line. Then the entry begins on a new
        # line.
        reserved_space.write_and_reserve(
            path, lambda: append_line(path, entry, after_torn_line=bool(torn_line))
        )


def read_logs(workdir: str) -> List[bytes]:
    """Return [content of the older log, content of the newer log]. The content of a missing log is
    b""."""
    folder = _log_folder(workdir)
    try:
        with _acquire_lock(folder):
            return [
                _read_log(os.path.join(folder, name))
                for name in (layout.AUDIT_OLD, layout.AUDIT_LOG)
            ]
    except FileNotFoundError:
        return [b"", b""]


def _log_folder(workdir: str) -> str:
    """Return the folder of this host's log. Hosts that share the workdir have one log each, so they
    do not wait for each other. Raises UntrustedPath, OSError."""
    name = os.uname().nodename
    relative_path = os.path.join(layout.AUDIT, name if is_safe_name(name) else "_")
    check_owners(workdir, relative_path)
    return os.path.join(workdir, relative_path)


# --- an entry


def _make_entry(call: Call, verb: str, outcome: str) -> AuditEntry:
    by = call.args.get("by")
    if not isinstance(by, dict):
        by = {}
    key, key_by = _session_key_fingerprint(), "sshd"
    if key is None:
        key, key_by = _short_text_or_none(by.get("key")), "operator"
    client = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return {
        "time": round(time.time(), 3),
        "host": call.host,
        "user": user_name(),
        "operator": _short_text_or_none(by.get("operator")),
        "command": _short_text_or_none(by.get("command")),
        "from": _short_text_or_none(client),
        "key": key,
        "key_by": key_by if key else None,
        "verb": verb,
        "job": _name_argument(call, "job"),
        "run": _name_argument(call, "run"),
        "outcome": outcome[:_MOST_TEXT],
        "secrets": sorted(call.secrets)[:_MOST_SECRETS],
        "version": __version__,
        "agent": os.path.basename(call.context.agent_dir),
    }


def _short_text_or_none(value: object) -> Optional[str]:
    return value[:_MOST_TEXT] if isinstance(value, str) and value else None


def _name_argument(call: Call, key: str) -> Optional[str]:
    value = call.args.get(key)
    return value if is_safe_name(value) else None


def _session_key_fingerprint() -> Optional[str]:
    """Return the fingerprint of the key that opened this session, as sshd states it
    (`ExposeAuthInfo yes`), or None."""
    try:
        method, _, key, *_ = read_start(os.environ.get("SSH_USER_AUTH", ""), 1 << 16).split()
        digest = sha256(binascii.a2b_base64(key)).digest()
    except ValueError:
        return None
    if method != b"publickey":
        return None
    return "SHA256:" + binascii.b2a_base64(digest, newline=False).decode("ascii").rstrip("=")


def _is_repetition(entry: AuditEntry, last_line: bytes) -> bool:
    """Return True if the log line `last_line` records the same command as `entry`. A new session
    repeats a command if the answer to that command was lost."""
    try:
        before = json_text.loads(last_line)
    except (ValueError, RecursionError):
        return False
    same: Tuple[str, ...] = (
        "host",
        "operator",
        "command",
        "verb",
        "job",
        "run",
        "outcome",
        "secrets",
    )
    if not isinstance(before, dict) or entry["command"] is None:
        return False
    return all(before.get(name) == dict(entry)[name] for name in same)


# --- the files


def _acquire_lock(folder: str) -> FileLock:
    lock = FileLock(os.path.join(folder, layout.AUDIT_LOCK))
    if not lock.acquire(LOCK_S):
        raise OSError(
            errno.EAGAIN,
            "another session has held the lock of the audit log for %g s" % LOCK_S,
            lock.path,
        )
    return lock


def _read_log(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    try:
        return os.read(descriptor, 2 * MOST_BYTES)
    finally:
        os.close(descriptor)
