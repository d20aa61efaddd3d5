"""Translates every error of paramiko, sockets and sshd into HostUnreachable (exit 4) with its cause."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import paramiko

from tfdeploy.errors import AgentError, HostUnreachable, TfdeployError
from tfdeploy.transport.ssh import closings, known_hosts
from tfdeploy.transport.ssh.closings import Closing
from tfdeploy.transport.ssh.host_keys import Judgement, judge
from tfdeploy.transport.ssh.target import Target

JUMP = "the jump host"


@dataclass
class Attempt:
    """How far one attempt to connect came."""

    host: str  # the inventory's name
    target: Target
    timeout_s: float
    timed_out: bool = False
    connected: bool = False  # TCP
    greeting: bytes = b""  # the first bytes that came
    agreed: bool = False  # the key exchange is done: the server speaks SSH and has proved its host key
    offered: int = 0  # keys
    answered: bool = False  # a login request was answered
    ended: bool = False  # by the other side
    parting: str = ""  # why the server ended the connection, as it says itself
    wanted: tuple[str, ...] = ()  # login methods that it asks for after it has accepted the key
    notes: tuple[str, ...] = ()  # about keys that could not be offered
    address: str = ""  # ours, as a directly reached server sees it
    waited_s: float = 0.0  # since the server first turned a connection of ours away

    @property
    def closing(self) -> Closing | None:
        """How sshd turned the connection away; None: the attempt ended otherwise."""
        if not self.connected or self.timed_out:
            return None
        if not self.agreed:
            return closings.before_login(self.greeting)
        unanswered = self.ended and bool(self.offered) and not self.answered and not self.parting
        return closings.UNANSWERED if unanswered else None

    @property
    def refused(self) -> bool:
        """The server speaks SSH and is another one than known, or takes none of our keys."""
        return self.agreed and not self.timed_out and self.closing is None


class HostKeyRefused(paramiko.SSHException):
    """Raised inside the handshake; carries the finished error."""

    def __init__(self, error: HostUnreachable) -> None:
        super().__init__(error.what)
        self.error = error


class KnownOnly(paramiko.RejectPolicy):
    """Accepts a host key that known_hosts holds, and no other. paramiko's own look-up is left empty, so all keys come here."""

    def __init__(self, host: str, target: Target) -> None:
        self._host, self._target = host, target

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # type: ignore[override]
        try:
            judged = judge(self._target, key.asbytes())
        except HostUnreachable as error:
            error.where = self._host
            raise
        if judged.state != "known":
            raise HostKeyRefused(refused_key(self._host, self._target, key.get_name(), key.asbytes(), judged))


def refused_key(host: str, target: Target, keytype: str, key: bytes, judged: Judgement) -> HostUnreachable:
    now = f"{keytype} {known_hosts.fingerprint(key)}"
    what, next_ = {"new": _unknown, "changed": _changed, "revoked": _revoked}[judged.state](host, target, judged, now)
    return HostUnreachable(f"the host key of {target.known_name} {what}", where=host, next=next_, retries=0)


def _unknown(host: str, target: Target, judged: Judgement, now: str) -> tuple[str, str]:
    what = f"is not known: {now}"
    if judged.authorities:
        what += f"; {judged.authorities[0].source} has a @cert-authority for it, but tfdeploy checks no host certificates"
    return what, f"tfdeploy trust --limit {host}"


def _changed(host: str, target: Target, judged: Judgement, now: str) -> tuple[str, str]:
    kind = now.partition(" ")[0]
    old = [entry for entry in judged.recorded if entry.keytype == kind] or list(judged.recorded)
    was = ", ".join(f"{entry.keytype} {entry.fingerprint} ({entry.source})" for entry in old[:3])
    what = f"has changed: known is {was}, now it shows {now}; someone may be in between, or the machine was set up again"
    return what, f"only if you know why: tfdeploy trust --renew {target.name or host}"


def _revoked(host: str, target: Target, judged: Judgement, now: str) -> tuple[str, str]:
    place = next(entry.source for entry in judged.entries if entry.revoked and entry.fingerprint == now.split()[1])
    mend = f"give the machine a new host key, then tfdeploy trust --renew {target.name or host}"
    return f"is marked as revoked: {now} ({place})", mend


def explain(error: BaseException, attempt: Attempt) -> HostUnreachable:
    """The cause of one failed attempt, with the line to type where there is one."""
    target, host = attempt.target, attempt.host
    if isinstance(error, HostKeyRefused):
        return error.error
    what, next_ = _cause(error, attempt)
    if target.jump is not None:
        what += f" (through {target.jump.where})"
    return HostUnreachable(what, where=host, next=next_, retries=_retries(error, attempt))


def _retries(error: BaseException, attempt: Attempt) -> int:
    """A host that accepts connections may be slow: many retries. One that is silent had its full time-out: one."""
    if attempt.timed_out:
        return 8 if attempt.connected else 1
    return 8 if attempt.closing is not None and attempt.closing.patience_s else 0


def _cause(error: BaseException, attempt: Attempt) -> tuple[str, str | None]:
    target = attempt.target
    place = target.where.rpartition("@")[2]
    if attempt.closing is not None and not isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return _closing_cause(attempt.closing, attempt)
    if isinstance(error, socket.gaierror):
        return f"the name {target.hostname} cannot be resolved: {error.strerror}", "check `address:` in the inventory"
    if attempt.agreed and (isinstance(error, paramiko.AuthenticationException) or attempt.timed_out):
        return _login_cause(attempt)
    if attempt.timed_out or isinstance(error, TimeoutError):
        if attempt.connected:
            said = "said nothing that ends in a login" if attempt.greeting else "accepts connections but says nothing"
            return f"{place} {said} within {attempt.timeout_s:g} s", f"ssh -v {_ssh_arguments(target)}"
        return (
            f"{place} does not answer within {attempt.timeout_s:g} s",
            f"is it up, and does a firewall drop port {target.port}?",
        )
    if isinstance(error, ConnectionRefusedError):
        return f"{place} refuses connections: no sshd listens there", "check `address:` and `port:`, and that sshd runs"
    if attempt.connected and not attempt.agreed and attempt.closing is None:
        return f"what answers on {place} is not an SSH server: it said {clean(attempt.greeting)!r}", "check `port:`"
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return f"{place} and tfdeploy have no algorithm in common: {error}", None
    if isinstance(error, OSError) and error.strerror:
        return f"{place}: {error.strerror}", None
    return f"{place}: {clean(str(error).encode()) or type(error).__name__}", f"ssh -v {_ssh_arguments(target)}"


def _closing_cause(closing: Closing, attempt: Attempt) -> tuple[str, str]:
    target = attempt.target
    facts = {
        "place": target.where.rpartition("@")[2],
        "user": target.user,
        "login": _ssh_arguments(target),
        "address": attempt.address or "ADDRESS (of the jump host)",
    }
    cause = closing.cause.format(**facts)
    if closing.notice and attempt.waited_s >= 1:
        cause += f"; tfdeploy asked again for {attempt.waited_s:.0f} s"
    return cause, closing.remedy.format(**facts)


def _login_cause(attempt: Attempt) -> tuple[str, str | None]:
    target = attempt.target
    if attempt.timed_out:
        return f"{target.where} did not finish the login within {attempt.timeout_s:g} s", None
    if attempt.wanted:
        ways = ", ".join(clean(way.encode()) for way in attempt.wanted[:4])
        return (
            f"{target.where} took the key and wants a second factor ({ways}): tfdeploy answers no questions",
            f"let {target.user} in with the key alone there: `Match User {target.user}` and "
            "`AuthenticationMethods publickey` in its sshd_config",
        )
    parting = (attempt.parting,) if attempt.parting else ()
    notes = "".join(f"; {note}" for note in (*attempt.notes, *parting))
    if not attempt.offered:
        return f"{target.where} takes no key that there is{notes}", "set `identity_file:`, or ssh-add a key"
    offered = f"refused the {'key' if attempt.offered == 1 else f'{attempt.offered} keys'} offered for user {target.user}"
    files = [path for path in target.identity_files if attempt.offered]
    shown = f" ({', '.join(files)})" if files else ""
    return (
        f"{target.where} {offered}{shown}{notes}",
        f"check `user:` and `identity_file:`, or: ssh-copy-id {_ssh_arguments(target)}",
    )


def no_keys(host: str, target: Target, notes: list[str]) -> HostUnreachable:
    """There is no key to offer: found before the host is dialled."""
    what = "; ".join(notes) or "there is no key to log in with: no identity file, and no ssh-agent holds one"
    return HostUnreachable(f"{what} (for {target.where})", where=host, next="set `identity_file:`, or ssh-add the key", retries=0)


def _ssh_arguments(target: Target) -> str:
    port = f"-p {target.port} " if target.port != 22 else ""
    return f"{port}{target.user}@{target.hostname}"


def clean(raw: bytes, limit: int = 300) -> str:
    """Foreign bytes as text for a message: one line, printable, at most `limit` characters."""
    text = raw[: 4 * limit].decode("utf-8", "replace")
    kept = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(kept.split())[:limit]


def unusable_jump(error: TfdeployError, jump: Target, host: str) -> TfdeployError:
    """The error of `host`, which is behind a jump host that failed with `error`."""
    made = copied(error)
    made.where = host
    if not made.what.startswith(JUMP):  # it may be an earlier jump host's
        made.what = f"{JUMP} {jump.where} cannot be used: {made.what}"
    return made


def copied(error: TfdeployError) -> TfdeployError:
    """A copy for each thread that raises it: one object raised in many threads would mix their tracebacks."""
    if isinstance(error, AgentError):
        return AgentError(error.what, code=error.code, details=error.details, where=error.where, next=error.next)
    if isinstance(error, HostUnreachable):
        return HostUnreachable(error.what, where=error.where, next=error.next, retries=error.retries)
    return type(error)(error.what, where=error.where, next=error.next)
