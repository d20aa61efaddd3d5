"""Declare the flags of `tfdeploy trust`."""

from __future__ import annotations

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags

_DESCRIPTION = """\
Show the keys of hosts that are not known yet, and record them after you agree. First compare the
fingerprints with the hosts' own: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host's
console.

--renew HOST is for a host that was reinstalled and has another key. It shows both fingerprints,
asks, and replaces the old key. HOST is a host of the inventory, or a jump host on the way to one.
If a line of known_hosts names other hosts too, the old key stays valid for the other hosts. Files
below /etc/ssh are never written.

Host names are hashed in known_hosts if the file has hashed names or ssh's HashKnownHosts is set.
Certificates of hosts (@cert-authority) are not checked: record the host's own key. A key that is
marked as @revoked is always refused.

Exit code: 0 if all hosts are known, 1 if the old key is still in a file that tfdeploy does not
write, 2 after a mistake on the command line, 4 if some hosts are not known.
"""


class Flags(CommonFlags):
    description = _DESCRIPTION

    fingerprints: str | None = option(
        "--fingerprints",
        metavar="FILE",
        help="record exactly the keys that FILE lists, each in a line `host SHA256:...`",
    )
    renew: str | None = option(
        "--renew", metavar="HOST", help="replace the key of one host whose key has changed"
    )
