"""How sshd turns a connection away: by which sign it is recognised, and whether waiting helps.

The signs are those of OpenSSH 9.2 to 10.5. `tests/contract/test_closings.py` provokes them on this
machine's sshd.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Closing:
    """One way in which sshd ends a connection that has not logged in."""

    patience_s: float  # for so long further tries may help; 0: another try only adds a penalty
    cause: str  # what happened, with {place} and {user}
    remedy: str  # what to type or to change, with {place}, {user}, {address} and {login}
    sentence: bytes = b""  # what sshd sends in place of its greeting
    notice: str = ""  # what the operator reads while tfdeploy waits


# From OpenSSH 9.8 on, one sentence for PerSourcePenalties and for MaxStartups. A penalty is enforced
# once it exceeds 15 s, six failed logins at once make 30 s, and a further try adds nothing to it.
HELD_OFF = Closing(
    sentence=b"Not allowed at this time",
    patience_s=40.0,
    notice="sshd holds this address off (PerSourcePenalties, or MaxStartups): asked again for up to {patience:g} s",
    cause="the sshd of {place} holds this address off: after failed logins, for 15 s to 10 minutes "
    "(PerSourcePenalties), or too many connections are logging in (MaxStartups)",
    remedy="wait some minutes, or add `PerSourcePenaltyExemptList {address}` to the sshd_config there",
)
# Up to OpenSSH 9.7.
CROWDED = Closing(
    sentence=b"Exceeded MaxStartups",
    patience_s=20.0,
    notice="too many connections are logging in (MaxStartups): asked again for up to {patience:g} s",
    cause="{place} lets nobody in: too many connections are logging in (MaxStartups)",
    remedy="raise `MaxStartups` (and `PerSourceMaxStartups`) in the sshd_config there",
)
SILENT = Closing(
    patience_s=8.0,
    cause="{place} closes connections before the handshake (MaxStartups, or its address rules)",
    remedy="ssh -v {login}",
)
# sshd has greeted, so that each such end counts there as a connection without a login.
INTERRUPTED = Closing(
    patience_s=0.5,
    cause="{place} ends connections during the handshake",
    remedy="ssh -v {login}",
)
# `RefuseConnection yes` (OpenSSH 9.9 and newer): the first login request ends the connection, and
# costs a penalty of 10 s.
UNANSWERED = Closing(
    patience_s=0.0,
    cause="{place} ends the connection of user {user} without an answer to the login (RefuseConnection, or its sshd failed)",
    remedy="check `user:`; `sshd -T -C user={user} | grep -i refuseconnection` there says whether that is why",
)
_WITH_SENTENCE = (HELD_OFF, CROWDED)


def before_login(greeting: bytes) -> Closing | None:
    """Return how a connection ended whose key exchange was not completed; None: not an SSH server.

    `greeting`: the first bytes that came.
    """
    for closing in _WITH_SENTENCE:
        if closing.sentence in greeting:
            return closing
    if not greeting:
        return SILENT
    return INTERRUPTED if greeting.startswith(b"SSH-") else None
