"""Classify how sshd closes a connection before login, and define for how long each case is retried.

The cases are those of OpenSSH 9.2 to 10.5. `tests/contract/test_closings.py` compares them with the
sshd of the machine that runs the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EarlyClosing:
    """One way in which sshd closes a connection before login.

    The texts `cause` and `remedy` may contain {place} (host and port), {user}, {address} (of this
    machine, as the host sees it) and {login} (the arguments of ssh). For a ProxyCommand, they may
    also contain {failure} (how the command ended), {program} and {config} (the configuration file).
    `notice` may contain {patience}.
    """

    # The connection is retried for this many seconds. 0 means that a retry cannot help, or would
    # make a penalty of sshd longer.
    patience_s: float
    cause: str  # what happened
    remedy: str  # what the operator should type or change
    sentence: bytes = b""  # the text that sshd sends instead of its greeting
    notice: str = ""  # message for the operator during the retries, or ""


_RETRIES = "tfdeploy retries for up to {patience:g} s"


# OpenSSH 9.8 and newer send the same text for PerSourcePenalties and for MaxStartups. sshd enforces
# only penalties of more than 15 s. After six failed logins, the penalty is 30 s, and retries for
# 40 s last longer than that. Retries do not make the penalty longer.
HELD_OFF = EarlyClosing(
    sentence=b"Not allowed at this time",
    patience_s=40.0,
    notice="sshd refuses this address for some time (PerSourcePenalties, or MaxStartups): "
    + _RETRIES,
    cause="the sshd of {place} refuses this address for some time: either after failed logins, for "
    "15 s to 10 minutes (PerSourcePenalties), or because too many connections are logging in "
    "(MaxStartups)",
    remedy="wait, or add PerSourcePenaltyExemptList {address} to the host's sshd_config",
)
# OpenSSH up to 9.7 sends a sentence of its own if too many connections are logging in.
CROWDED = EarlyClosing(
    sentence=b"Exceeded MaxStartups",
    patience_s=20.0,
    notice="too many connections are logging in (MaxStartups): " + _RETRIES,
    cause="{place} drops connections: too many are logging in (MaxStartups)",
    remedy="raise MaxStartups (and PerSourceMaxStartups) in the host's sshd_config",
)
SILENT = EarlyClosing(
    patience_s=8.0,
    cause="{place} closes connections before the handshake (MaxStartups, or rules about addresses)",
    remedy="`ssh -v {login}`",
)
# The ProxyCommand may have failed because sshd closed the connection that the ProxyCommand opened.
# So the connection is retried.
PROXY_FAILED = EarlyClosing(
    patience_s=8.0,
    cause="the ProxyCommand for {place} {failure}",
    remedy="correct `ProxyCommand` in {config}",
)
PROXY_MISSING = replace(
    PROXY_FAILED,
    patience_s=0.0,
    remedy="install {program} on this machine, or correct `ProxyCommand` in {config}",
)
# sshd closed the connection after its greeting. sshd counts this as a connection without a login.
# Many such connections lead to a penalty, so the retries end soon.
INTERRUPTED = EarlyClosing(
    patience_s=0.5,
    cause="{place} ends connections during the handshake",
    remedy="`ssh -v {login}`",
)
# With `RefuseConnection yes` (OpenSSH 9.9 and newer), sshd closes the connection at the first login
# request, and adds a penalty of 10 s.
UNANSWERED = EarlyClosing(
    patience_s=0.0,
    cause="{place} ends the connection of user {user} without an answer to the login "
    "(RefuseConnection, or the host's sshd process failed)",
    remedy="check `user:`; to see whether RefuseConnection is set, as root on that host: "
    "sshd -T -C user={user} | grep -i refuseconnection",
)
_WITH_SENTENCE = (HELD_OFF, CROWDED)


def find_closing_cause(greeting: bytes) -> EarlyClosing | None:
    """Return why sshd closed a connection before the key exchange was complete.

    `greeting`: the first bytes received. Returns None if they do not come from an SSH server.
    """
    for closing in _WITH_SENTENCE:
        if closing.sentence in greeting:
            return closing
    if not greeting:
        return SILENT
    return INTERRUPTED if greeting.startswith(b"SSH-") else None
