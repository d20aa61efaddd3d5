"""What `tfdeploy trust` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags

_DESCRIPTION = """\
Shows the host keys of hosts not yet known, and records them after a yes. Compare the fingerprints with the hosts' own
first: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host's console.

--renew HOST is for a host that was set up again and shows another key: it shows both fingerprints and asks, then the new
key stands in the place of the old. HOST is a host of the inventory, or a jump host on the way to one. Lines that also name
other hosts keep them, and files below /etc/ssh are never written.

Names are hidden in known_hosts where the file has hidden names, or ssh's HashKnownHosts says so. Certificates of hosts
(@cert-authority) are not checked: record the host's own key. A key marked as @revoked is refused always.
Exit codes: 0 all are known; 1 the old key still stands in a file that tfdeploy does not write; 2; 4 some are not known.
"""


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = _DESCRIPTION

    fingerprints: str | None = option(
        "--fingerprints",
        metavar="FILE",
        help="take exactly the keys whose `host SHA256:...` stands in FILE",
    )
    renew: str | None = option(
        "--renew", metavar="HOST", help="replace the key of one host that has changed"
    )
