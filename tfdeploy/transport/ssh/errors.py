"""Translate every error of paramiko, sockets and sshd into HostUnreachable (exit code 4)."""

from __future__ import annotations

import os
import re
import shlex
import socket
from dataclasses import dataclass
from typing import TypeVar

import paramiko

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.transport.ssh import closings, ssh_config
from tfdeploy.transport.ssh.closings import EarlyClosing
from tfdeploy.transport.ssh.host_keys import known_hosts
from tfdeploy.transport.ssh.host_keys.accepted_keys import Judgement, judge
from tfdeploy.transport.ssh.identities import KeyOffer
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.tcp import Link

JUMP = "the jump host"
E = TypeVar("E", bound=TfdeployError)


@dataclass
class Attempt:
    """One attempt to connect: the stages that it reached, and how it ended."""

    host: str  # the host's name in the inventory
    target: Target
    timeout_s: float
    timed_out: bool = False
    link: Link | None = None  # None as long as there is no connection
    transport: paramiko.Transport | None = None
    offer: KeyOffer | None = None
    waited_s: float = 0.0  # seconds since the server first closed a connection before login

    def close(self) -> None:
        """Close the link, then the transport. The closed link wakes up the transport's thread."""
        for each in (self.link, self.transport):
            if each is not None:
                each.close()

    @property
    def greeting(self) -> bytes:
        """Return the first bytes that the server sent."""
        return self.link.greeting if self.link is not None else b""

    @property
    def is_key_exchange_done(self) -> bool:
        """True if the key exchange is complete. The server has then proved its host key."""
        return bool(self.transport is not None and self.transport.initial_kex_done)

    @property
    def disconnect_text(self) -> str:
        """Return the text of the server's disconnect message, or "" if there is none."""
        return getattr(self.transport, "disconnect_text", "")

    @property
    def closing(self) -> EarlyClosing | None:
        """Return why sshd closed the connection before login, or None if sshd did not close it."""
        if self.link is None or self.timed_out:
            return None
        if not self.is_key_exchange_done:
            if failure := self.link.proxy_failure:
                return closings.PROXY_MISSING if " 127:" in failure else closings.PROXY_FAILED
            return closings.find_closing_cause(self.greeting)
        offered = self.offer is not None and self.offer.offered_count and not self.offer.answered
        return (
            closings.UNANSWERED
            if offered and self.link.ended and not self.disconnect_text
            else None
        )

    @property
    def is_refused(self) -> bool:
        """True if the host key or the login was refused after the key exchange."""
        return self.is_key_exchange_done and not self.timed_out and self.closing is None


class HostKeyRefused(paramiko.SSHException):
    """An exception that ends paramiko's handshake. `error`: the error for the operator."""

    def __init__(self, error: HostUnreachable) -> None:
        super().__init__(error.what)
        self.error = error


class KnownHostsPolicy(paramiko.RejectPolicy):
    """A policy for paramiko that accepts only host keys in known_hosts.

    paramiko asks this policy about every host key, because paramiko's own list of known keys is
    empty.
    """

    def __init__(self, host: str, target: Target) -> None:
        self._host, self._target = host, target

    def missing_host_key(  # type: ignore[override]
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        keytype, blob = key.get_name(), key.asbytes()
        if judge(self._target, blob, with_authorities=False).state != "known":
            judged = judge(self._target, blob)
            raise HostKeyRefused(refused_key_error(self._host, self._target, keytype, blob, judged))


def refused_key_error(
    host: str,
    target: Target,
    keytype: str,
    key: bytes,
    judged: Judgement,
) -> HostUnreachable:
    """Return the error for a host key whose state is "new", "changed" or "revoked"."""
    shown = f"{keytype} {known_hosts.fingerprint(key)}"
    describe = {"new": _explain_unknown, "changed": _explain_changed, "revoked": _explain_revoked}[
        judged.state
    ]
    what, remedy = describe(host, target, judged, shown)
    return HostUnreachable(
        f"the host key of {target.known_hosts_name} {what}", where=host, next=remedy, retries=0
    )


def _explain_unknown(
    host: str, target: Target, judged: Judgement, shown_key: str
) -> tuple[str, str]:
    """Return (cause, remedy) for a host key that is not in known_hosts."""
    what = f"is not known: {shown_key}"
    if judged.authorities:
        source = judged.authorities[0].source
        what += f"; {source} has a @cert-authority line for this host, "
        what += "but tfdeploy checks no host certificates"
    return what, f"`tfdeploy trust --limit {host}`"


def _explain_changed(
    host: str, target: Target, judged: Judgement, shown_key: str
) -> tuple[str, str]:
    """Return (cause, remedy) for a host key that differs from the host's keys in known_hosts."""
    keytype = shown_key.partition(" ")[0]
    same_type = [entry for entry in judged.recorded if entry.keytype == keytype]
    entries = (same_type or list(judged.recorded))[:3]
    known_keys = ", ".join(
        f"{entry.keytype} {entry.fingerprint} ({entry.source})" for entry in entries
    )
    what = f"has changed: the known key is {known_keys}, and the host now shows {shown_key}; "
    what += "someone may be intercepting the connection, or the machine was set up again"
    return what, (
        f"only if you know why the key has changed: `tfdeploy trust --renew {target.name or host}`"
    )


def _explain_revoked(
    host: str, target: Target, judged: Judgement, shown_key: str
) -> tuple[str, str]:
    """Return (cause, remedy) for a host key that is revoked."""
    revoked = [entry for entry in judged.entries if entry.is_revoked]
    source = next(entry.source for entry in revoked if entry.fingerprint == shown_key.split()[1])
    remedy = f"give the machine a new host key, then `tfdeploy trust --renew {target.name or host}`"
    return f"is marked as revoked: {shown_key} ({source})", remedy


def explain(error: BaseException, attempt: Attempt) -> HostUnreachable:
    """Return the error of a failed attempt to connect, with the cause and perhaps a remedy."""
    target, host = attempt.target, attempt.host
    if isinstance(error, HostKeyRefused):
        return error.error
    what, next_ = _find_cause(error, attempt)
    if target.jump is not None:
        what += f" (through {target.jump.where})"
    return HostUnreachable(what, where=host, next=next_, retries=_count_retries(error, attempt))


def _count_retries(error: BaseException, attempt: Attempt) -> int:
    """Return how many more attempts may help.

    For a host that accepted the connection, return 8, because the host may only be slow. For a host
    that did not answer, return 1, because every attempt takes a whole time-out.
    """
    if attempt.timed_out:
        return 8 if attempt.link is not None else 1
    return 8 if attempt.closing is not None and attempt.closing.patience_s else 0


def _find_cause(error: BaseException, attempt: Attempt) -> tuple[str, str | None]:
    """Return (cause, remedy) of a failed attempt to connect. If no remedy is known, it is None."""
    target = attempt.target
    address = target.shown_address
    is_incompatible = isinstance(error, paramiko.ssh_exception.IncompatiblePeer)
    if attempt.closing is not None and not is_incompatible:
        return _closing_cause(attempt.closing, attempt)
    if isinstance(error, socket.gaierror):
        what = f"the name {target.hostname} cannot be resolved: {error.strerror}"
        return what, f"correct {target.address_setting}; {_exclude_hint(attempt)}"
    is_login_error = isinstance(error, paramiko.AuthenticationException)
    if attempt.is_key_exchange_done and (is_login_error or attempt.timed_out):
        return _login_cause(attempt)
    if attempt.timed_out or isinstance(error, TimeoutError):
        return _timeout_cause(attempt)
    if isinstance(error, ConnectionRefusedError):
        what = f"{address} refuses connections: no sshd listens there"
        setting = target.address_setting
        remedy = f"check {setting} and `port:`, and that sshd runs; {_exclude_hint(attempt)}"
        return what, remedy
    if attempt.link is not None and not attempt.is_key_exchange_done and attempt.closing is None:
        greeting = printable_line(attempt.greeting)
        what = f"what answers on {address} is not an SSH server: it said {greeting!r}"
        return what, "check `port:`"
    if is_incompatible:
        return f"{address} and tfdeploy have no algorithm in common: {error}", None
    if isinstance(error, OSError) and error.strerror:
        return f"{address}: {error.strerror}", None
    what = f"{address}: {printable_line(str(error).encode()) or type(error).__name__}"
    return what, f"`ssh -v {_ssh_arguments(target)}`"


def _timeout_cause(attempt: Attempt) -> tuple[str, str]:
    """Return (cause, remedy) of a time-out before the key exchange was complete."""
    target = attempt.target
    address = target.shown_address
    if attempt.link is None:
        what = f"{address} does not answer within {attempt.timeout_s:g} s"
        remedy = (
            f"is the host up, or does a firewall drop port {target.port}? {_exclude_hint(attempt)}"
        )
        return what, remedy
    if attempt.greeting:
        what = (
            f"the sshd of {address} did not complete the handshake within {attempt.timeout_s:g} s"
        )
    else:
        what = f"{address} accepts connections but says nothing within {attempt.timeout_s:g} s"
    return what, f"`ssh -v {_ssh_arguments(target)}`"


def _exclude_hint(attempt: Attempt) -> str:
    return f"to go on without this host: --exclude {attempt.host}"


def _closing_cause(closing: EarlyClosing, attempt: Attempt) -> tuple[str, str]:
    """Return (cause, remedy) of a connection that sshd closed before login."""
    target = attempt.target
    fields = {
        "place": target.shown_address,
        "user": target.user,
        "login": _ssh_arguments(target),
        "address": (attempt.link and attempt.link.own_address) or "ADDRESS (of the jump host)",
        "failure": attempt.link.proxy_failure if attempt.link is not None else "",
        "program": (target.proxy_command or "").split(" ")[0],
        "config": ssh_config.config_file_with("proxycommand"),
    }
    cause = closing.cause.format(**fields)
    if closing.notice and attempt.waited_s >= 1:
        cause += f"; tfdeploy retried for {attempt.waited_s:.0f} s"
    return cause, closing.remedy.format(**fields)


def _login_cause(attempt: Attempt) -> tuple[str, str | None]:
    """Return (cause, remedy) of a failed login."""
    target = attempt.target
    if attempt.timed_out:
        what = f"{target.where} did not finish the login within {attempt.timeout_s:g} s"
        return what, None
    offer = attempt.offer
    # This is only for the type checker: `offer` is set before a login begins.
    assert offer is not None
    if offer.required_methods:
        methods = ", ".join(
            printable_line(method.encode()) for method in offer.required_methods[:4]
        )
        what = f"{target.where} accepted the key, but wants a second factor ({methods}): "
        what += "tfdeploy cannot give a second factor"
        remedy = f"let {target.user} log in with only the key: in sshd_config of this host, write "
        return what, f"{remedy}`Match User {target.user}` and `AuthenticationMethods publickey`"
    parting = (attempt.disconnect_text,) if attempt.disconnect_text else ()
    notes = "".join(f"; {note}" for note in (*offer.notes, *parting))
    if not offer.offered_count:
        what = f"{target.where} accepts none of the available keys{notes}"
        return what, _key_remedy(target)
    keys = "key" if offer.offered_count == 1 else f"{offer.offered_count} keys"
    files = f" ({', '.join(target.identity_files)})" if target.identity_files else ""
    what = f"{target.where} refused the {keys} offered for user {target.user}{files}{notes}"
    return (
        what,
        f"if there is no user {target.user} there, set {target.user_setting}; otherwise "
        + _copy_id_command(target),
    )


def _copy_id_command(target: Target) -> str:
    """Return the command that authorises the offered key on the host.

    The option -i is added only if the key's .pub file exists, because ssh-copy-id needs this file.
    """
    public = [path if path.endswith(".pub") else f"{path}.pub" for path in target.identity_files]
    identity_option = next(
        (f"-i {shlex.quote(path)} " for path in public if os.path.isfile(path)), ""
    )
    alternative = f"set {target.key_setting} to a key that the host accepts"
    return f"`ssh-copy-id {identity_option}{_ssh_arguments(target)}`, or {alternative}"


def no_keys_error(host: str, target: Target, notes: list[str]) -> HostUnreachable:
    """Return the error for a target that has no usable key and is therefore not dialled."""
    what = "; ".join(notes)
    what = what or "there is no key to log in with: no identity file, and no key in an ssh-agent"
    what += f" (for {target.where})"
    return HostUnreachable(what, where=host, next=_key_remedy(target), retries=0)


def _key_remedy(target: Target) -> str:
    """Return what to do if there is no key to offer, or if the host accepts none of the keys."""
    # If `key_setting` ends with a line number, a file has this setting. Then the operator can
    # correct or remove the setting.
    stated = re.search(r":\d+\)\Z", target.key_setting)
    verb = "correct or remove" if stated else "set"
    return f"{verb} {target.key_setting}, or load a key into an agent with `ssh-add`"


def _ssh_arguments(target: Target) -> str:
    """Return the arguments that the operator can type after `ssh`."""
    port = f"-p {target.port} " if target.port != 22 else ""
    hops, hop = list[str](), target.jump
    while hop is not None:
        hops.insert(0, hop.where)
        hop = hop.jump
    jump = f"-o ProxyJump={','.join(hops)} " if hops else ""
    return f"{port}{jump}{target.user}@{target.hostname}"


def printable_line(raw: bytes, max_chars: int = 300) -> str:
    """Return bytes of a host as one line of at most `max_chars` printable characters."""
    text = raw[: 4 * max_chars].decode("utf-8", "replace")
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:max_chars]


def jump_host_error(error: TfdeployError, jump: Target, host: str) -> TfdeployError:
    """Return the error for `host`: its jump host `jump` failed with `error`."""
    copy = copy_error(error)
    if copy.next is not None and error.where:
        # The error may have been made for another host behind the same jump host, so replace that
        # host's name.
        copy.next = re.sub(
            rf"(--(?:limit|exclude) ){re.escape(error.where)}(?![\w.-])", rf"\g<1>{host}", copy.next
        )
    copy.where = host
    # An error about an earlier jump host on the way already names that jump host.
    if not copy.what.startswith(JUMP):
        copy.what = f"{JUMP} {jump.where} cannot be used: {copy.what}"
    return copy


def copy_error(error: E) -> E:
    """Return a copy of `error`, so that each thread raises an object of its own.

    If several threads raised the same object, their tracebacks would mix.
    """
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(vars(error))
    return copy
