"""trust: scan, record, and then the sessions know them; a changed key is never replaced."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

from tfdeploy.operations import trust
from tfdeploy.transport.fleet import SshFleet


def test_new_keys_are_shown_recorded_once_and_then_known(yard: Any) -> None:
    new, known = yard.host("n1", known=False), yard.host("n2")
    down = replace(known.host, name="down", port=1)
    found = trust.scan((new.host, known.host, down))
    assert [(one.host, one.state) for one in found] == [("n1", "new"), ("n2", "known"), ("down", "unreachable")]
    public = str(new.config.parent / "hostkey.pub")
    shown = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True).stdout.split()[1]
    assert found[0].found.fingerprint == shown
    assert [one.host for one in trust.record([*found, *found])] == ["n1"]
    assert [one.state for one in trust.scan((new.host,))] == ["known"]
    with SshFleet() as fleet:
        assert fleet.session(new.host).run(("true",)).exit_code == 0
    assert subprocess.run(["ssh-keygen", "-F", f"[127.0.0.1]:{new.port}", "-f", str(yard.known)], capture_output=True, check=True)


def test_a_changed_key_is_shown_and_not_recorded(yard: Any) -> None:
    sshd, other = yard.host("n1", known=False), yard.host("n2")
    old = (other.config.parent / "hostkey.pub").read_text().split()[1]
    yard.known.write_text(f"[127.0.0.1]:{sshd.port} ssh-ed25519 {old}\n")
    found = trust.scan((sshd.host,))
    assert found[0].state == "changed"
    assert trust.record(found) == []


def test_hosts_behind_an_unknown_jump_host_come_second(yard: Any) -> None:
    jump, inner = yard.host("jump", known=False), yard.host("inner", known=False)
    host = replace(inner.host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
    first = trust.scan((host,))
    assert [one.state for one in first] == ["new", "unreachable"]
    trust.record(first)
    second = trust.scan((host,))
    assert [one.state for one in second] == ["known", "new"]
    trust.record(second)
    assert [one.state for one in trust.scan((host,))] == ["known", "known"]


def test_fingerprint_lists_are_read() -> None:
    text = "# mine\nn1 SHA256:abc=\nn2 ssh-ed25519 SHA256:def comment\n256 nothing\n"
    assert trust.read_fingerprints(text) == {"n1": "SHA256:abc", "n2": "SHA256:def"}
