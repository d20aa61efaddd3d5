"""Rules of nft on isolated hosts, for as long as a test wants them: what a firewall between hosts
would do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.lab.hosts import changed_host
from tfdeploy.lab import Lab

SCRIPT = """nft add table inet {table}
nft add chain inet {table} cut '{{ type filter hook {hook} priority 0; }}'
nft add rule inet {table} cut {what} {verdict}"""
UNDO = "nft delete table inet cut"


def towards(lab: Lab, host: str, *, verdict: str, ports: str = "2222-2299") -> str:
    """The script that keeps a host from reaching the run's ports of that one."""
    what = f"ip daddr {_address(lab, host)} tcp dport {ports}"
    return SCRIPT.format(table="cut", hook="output", what=what, verdict=verdict)


def inwards(what: str, *, ports: str = "2222-2299") -> str:
    """The script that drops what comes to the run's ports of a host; `what`: only such packets."""
    return SCRIPT.format(
        table="cut", hook="input", what=f"{what} tcp dport {ports}", verdict="drop"
    )


@contextmanager
def cut_between(lab: Lab, one: str, other: str) -> Iterator[None]:
    """No packet of `one` goes to `other`, so that neither reaches the other; everybody else reaches
    both."""
    table = f"cut_{other}"
    script = SCRIPT.format(
        table=table, hook="output", what=f"ip daddr {_address(lab, other)}", verdict="drop"
    )
    with changed_host(lab, one, script, f"nft delete table inet {table}"):
        yield


def _address(lab: Lab, host: str) -> str:
    return next(str(row["address"]) for row in lab.status() if row["host"] == host)
