"""`tfdeploy trust`: shows the fingerprints of unknown host keys, and records the keys that the user confirms.

A changed key is reported; only `renew`, for one machine that the user names, replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import recording
from tfdeploy.transport.ssh.connect import Connector, OnNotice, no_notice
from tfdeploy.transport.ssh.errors import copied, refused_key, unusable_jump
from tfdeploy.transport.ssh.host_keys import Judgement
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.trust import HostKey, targets
from tfdeploy.transport.ssh.trust import scan as scan_one

PARALLEL = 32


@dataclass(frozen=True)
class ScanResult:
    """One machine's host key, or the error of asking for it. `host`: its name in the inventory, or the jump host's name."""

    host: str
    found: HostKey | TfdeployError

    @property
    def state(self) -> str:
        """known, new, changed, revoked or unreachable."""
        return self.found.state if isinstance(self.found, HostKey) else "unreachable"


def scan(hosts: tuple[Host, ...], parallel: int = PARALLEL, on_notice: OnNotice = no_notice) -> list[ScanResult]:
    """The host keys of the jump hosts, then of all hosts in order.

    Each machine is asked once, and none through a jump host whose key is not known: sshd penalises
    connections without a login. Record the jump host's key, then scan again.
    """
    hops: dict[Target, str] = {}
    last: list[tuple[str, Target | TfdeployError]] = []
    for host in hosts:
        try:
            *before, target = targets(host)
        except TfdeployError as error:
            last.append((host.name, error))
            continue
        last.append((host.name, target))
        hops.update({hop: hop.hostname for hop in before if hop not in hops})
    asked = [(name, hop) for hop, name in hops.items()]
    asked += [(name, one) for name, one in last if isinstance(one, Target)]
    connector = Connector(on_notice=on_notice)
    try:
        found = _scan_by_distance(asked, parallel, connector)
    finally:
        connector.close()
    return [
        ScanResult(name, found[_machine(one)].of(name, one) if isinstance(one, Target) else one)
        for name, one in [*((name, hop) for hop, name in hops.items()), *last]
    ]


@dataclass(frozen=True)
class _Answer:
    """What one machine answered. Several hosts of the inventory may be that machine."""

    found: HostKey | TfdeployError

    @property
    def is_known(self) -> bool:
        return isinstance(self.found, HostKey) and self.found.state == "known"

    def of(self, name: str, target: Target) -> HostKey | TfdeployError:
        if isinstance(self.found, HostKey):
            return replace(self.found, target=target)
        error = copied(self.found)
        error.where = name
        return error


def _scan_by_distance(asked: list[tuple[str, Target]], parallel: int, connector: Connector) -> dict[Target, _Answer]:
    """Ask the machines that are reached directly, then those behind them, and so on."""
    machines: dict[Target, tuple[str, Target]] = {}
    for name, target in asked:
        machines.setdefault(_machine(target), (name, target))
    found: dict[Target, _Answer] = {}

    def ask(machine: Target) -> _Answer:
        name, target = machines[machine]
        before = None if target.jump is None else found[_machine(target.jump)]
        if target.jump is not None and before is not None and not before.is_known:
            return _Answer(_behind(name, target.jump, before.found))
        return _Answer(_ask(name, target, connector).found)

    with ThreadPoolExecutor(parallel) as pool:
        for distance in sorted({_distance(machine) for machine in machines}):
            level = [machine for machine in machines if _distance(machine) == distance]
            found.update(zip(level, pool.map(ask, level), strict=True))
    return found


def _behind(name: str, jump: Target, found: HostKey | TfdeployError) -> TfdeployError:
    """The error of a host whose jump host cannot be used."""
    if isinstance(found, HostKey):
        found = refused_key(name, jump, found.keytype, found.key, Judgement(found.state, found.entries))
    return unusable_jump(found, jump, name)


def _machine(target: Target) -> Target:
    """The target without what only matters for a login."""
    return replace(target, user="", identity_files=(), identities_only=False, agent="", certificates=(), unused=())


def _distance(target: Target) -> int:
    return 0 if target.jump is None else 1 + _distance(target.jump)


def find_machine(hosts: tuple[Host, ...], name: str, on_notice: OnNotice = no_notice) -> ScanResult | None:
    """The host key of one host, or of the jump host of that name. None: there is no such machine."""
    behind = (host for host in hosts if any(name in (hop.name, hop.hostname) for hop in targets(host)[:-1]))
    asked = next((host for host in hosts if host.name == name), None) or next(behind, None)
    if asked is None:
        return None
    hops = targets(asked)
    target = hops[-1] if asked.name == name else next(hop for hop in hops if name in (hop.name, hop.hostname))
    connector = Connector(on_notice=on_notice)
    try:
        return _ask(name, target, connector)
    finally:
        connector.close()


def record(found: Iterable[ScanResult]) -> list[ScanResult]:
    """Records the new keys among `found`, each once; returns those. Raises HostFailed where a file cannot be written."""
    written: dict[tuple[str, str, bytes], ScanResult] = {}
    for one in found:
        key = one.found
        if not isinstance(key, HostKey) or key.state != "new":
            continue
        place = (_file_of(one, key), key.name, key.key)
        if place not in written:
            recording.append(place[0], key.name, key.line())
            written[place] = one
    return list(written.values())


def renew(one: ScanResult) -> None:
    """Replaces the keys that the user has seen by the one that the machine showed. Raises HostFailed."""
    key = one.found
    assert isinstance(key, HostKey)
    _file_of(one, key)
    recording.replace(key.files, key.name, key.line(), [entry.key for entry in key.recorded])


def _file_of(one: ScanResult, key: HostKey) -> str:
    if not key.files:
        raise HostFailed(
            "there is no known_hosts file of yours to record it in", where=one.host, next="set `known_hosts:` in the inventory"
        )
    return key.files[0]


def _ask(name: str, target: Target, connector: Connector) -> ScanResult:
    try:
        return ScanResult(name, scan_one(name, target, connector))
    except TfdeployError as error:
        return ScanResult(name, error)


def read_fingerprints(text: str) -> dict[str, str]:
    """name -> fingerprint, from `--fingerprints FILE`: lines `host SHA256:...`, or a name and what `ssh-keygen -lf` prints."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        prints = [word for word in words if word.startswith("SHA256:")]
        if prints and not words[0].startswith("#"):
            found[words[0]] = prints[0].rstrip("=")
    return found
