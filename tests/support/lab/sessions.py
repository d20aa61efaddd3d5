"""Check that a host refuses a session, and return the error."""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.fleet import SshFleet


def refused(fleet: SshFleet, host: Any) -> HostUnreachable:
    with pytest.raises(HostUnreachable) as caught:
        fleet.session(host)
    assert caught.value.where == host.name
    assert caught.value.exit_code == 4
    return caught.value
