"""Apply nft rules to isolated hosts during a test, as a firewall between the hosts does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.lab.hosts import host_changed_by_scripts
from tfdeploy.lab import Lab

SCRIPT = """nft add table inet {table}
nft add chain inet {table} cut '{{ type filter hook {hook} priority 0; }}'
nft add rule inet {table} cut {what} {verdict}"""
UNDO = "nft delete table inet cut"


def towards(lab: Lab, host: str, *, verdict: str, ports: str = "2222-2299") -> str:
    """Return an nft script for another host. Its rule applies `verdict` to packets from that host
    to the run's ports on `host`.
    """
    what = f"ip daddr {_address(lab, host)} tcp dport {ports}"
    return SCRIPT.format(table="cut", hook="output", what=what, verdict=verdict)


def inwards(what: str, *, ports: str = "2222-2299") -> str:
    """Return an nft script for a receiving host. Its rule drops packets that arrive at the run's
    ports and that the nft expression `what` selects.
    """
    return SCRIPT.format(
        table="cut", hook="input", what=f"{what} tcp dport {ports}", verdict="drop"
    )


@contextmanager
def cut_between(lab: Lab, one: str, other: str) -> Iterator[None]:
    """Drop all packets from `one` to `other`.

    So these two hosts cannot connect to each other. All other hosts can connect to both.
    """
    table = f"cut_{other}"
    script = SCRIPT.format(
        table=table, hook="output", what=f"ip daddr {_address(lab, other)}", verdict="drop"
    )
    with host_changed_by_scripts(lab, one, script, f"nft delete table inet {table}"):
        yield


def _address(lab: Lab, host: str) -> str:
    return next(str(row["address"]) for row in lab.status() if row["host"] == host)
