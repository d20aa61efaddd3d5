"""Make the run's nftables table on this host, which exists as long as the minder or a supervisor
lives.

nft reads a FIFO in the run's folder. The minder and the supervisors hold its writing end open
(RunPaths.hold_firewall). When the last of them ends, nft's input ends, so nft ends, and the kernel
removes the table that it owned. This needs no signal.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Callable, List, Optional, Tuple
from tfdeploy.agent.host.installed import Asked
from tfdeploy.agent.host.network import nft, nft_program
from tfdeploy.agent.minder.held_ports import FirewallRefused
from tfdeploy.agent.run.folder import RunPaths

WITHIN_S = 10.0  # the first time
AGAIN_WITHIN_S = 2.0  # while the minder has other things to do
PAUSE_S = 5.0  # between two tries of a running minder
_LOOK_S = 0.02
_TRIES = 2  # another program may change tables at the same moment
_QUIT = b"\nquit\n"


def closed(paths: RunPaths, part: wire.HostPart) -> nft.Closed:
    """Return what the firewall closes on this host."""
    own = [spec.port or spec.own_port for spec in part.tasks]
    own += [minder.port for minder in part.mesh if minder.host == part.host]
    own_addresses = {
        address for minder in part.mesh if minder.host == part.host for address in minder.addresses
    }
    elsewhere = [
        end
        for minder in part.mesh
        if minder.host != part.host
        for end in _ends(part, minder)
        if end[0] not in own_addresses
    ]
    ports = tuple(port for port in own if port is not None)
    name = nft.table_name(paths.host_dir, part.run)
    return nft.Closed(name, os.geteuid(), ports, tuple(part.allowed), tuple(elsewhere))


def _ends(part: wire.HostPart, minder: wire.MeshHost) -> List[Tuple[str, int]]:
    """Return the addresses and ports of the run on another host. Some may also be this host's own,
    because bridges of containers are alike."""
    ports = {minder.port} | {
        int(peer.address.rpartition(":")[2])
        for peer in part.peers
        if peer.host == minder.host and peer.address
    }
    return [(address, port) for address in minder.addresses for port in sorted(ports)]


def stand(
    paths: RunPaths, part: wire.HostPart, takes_over: bool, journal: Callable[..., None]
) -> Firewall:
    """Make the run's table, before anything listens. Raises FirewallRefused.

    A minder that takes over continues without a table that cannot be made now, and tries again.
    """
    try:
        made = Firewall(paths, closed(paths, part))
    except (OSError, ValueError) as error:
        raise FirewallRefused(str(error)) from error
    try:
        made.begin()
    except (FirewallRefused, OSError) as error:
        if not takes_over:
            made.close()
            raise FirewallRefused(str(error)) from error
        journal("firewall", why=str(error))
    return made


class Firewall:
    def __init__(self, paths: RunPaths, closed: nft.Closed) -> None:
        """Raises OSError, ValueError (an address that is none)."""
        self._folder = paths.host_dir
        self._path, self._log = paths.file(layout.FIREWALL_FIFO), paths.file(layout.FIREWALL_LOG)
        nft.table(closed)  # now, not when it is needed again
        self._closed = closed
        self._way: List[str] = []
        self._next_try = 0.0
        self._noted = ""
        try:
            os.mkfifo(self._path, 0o600)
        except FileExistsError:
            pass
        self._held: Optional[int] = paths.hold_firewall()

    def begin(self) -> None:
        """Return once the table exists: that of an earlier minder, or a new one. Raises
        FirewallRefused, OSError."""
        if self._has_reader() and not self._find_way() and self._stands():
            return
        self._make(WITHIN_S)

    def restore(self) -> str:
        """Make the table again after its nft was killed, which takes root. Return what happened;
        "": nothing did.

        The journal records it: until then only the filter of the ports themselves, if there is one,
        kept strangers out.
        """
        now = time.monotonic()
        if self._held is None or self._has_reader() or now < self._next_try:
            return ""
        self._next_try = now + PAUSE_S
        try:
            self._make(AGAIN_WITHIN_S)
        except (FirewallRefused, OSError) as error:
            return "the table was removed, and cannot be made again: %s" % error
        return "the table was removed, and stands again"

    def keep(self, journal: Callable[..., None]) -> None:
        """Keep the table in place. The journal says why if that fails."""
        event = self.restore()
        if event and event != self._noted:
            journal("firewall", why=event)
            self._noted = event

    def close(self) -> None:
        """Release the table: this process needs it no longer."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    # --- nft

    def _make(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        wrong = self._find_way()
        if wrong:
            raise FirewallRefused(wrong)
        for _ in range(_TRIES):
            began = self._start()
            # an nft that ends may still have its own
            name = "%s_%s" % (self._closed.name, os.urandom(4).hex())
            text = nft.table(self._closed._replace(name=name)).encode("ascii")
            wrong = self._say(text, deadline) or self._wrong(name, began, deadline)
            if not wrong:
                return
            # it may be that of a dead minder, which supervisors keep alive
            self._say(_QUIT, deadline)
            while self._has_reader() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        raise FirewallRefused("nft: " + wrong)

    def _find_way(self) -> str:
        """Find how nft is started, once. Return why there is no way; "": there is one."""
        refused = ""
        if not self._way:
            way, refused = nft_program.read(nft_program.start())
            self._way = way or []
        return refused

    def _start(self) -> int:
        """Start nft with the FIFO as its input. Return where its output begins in the log. nft
        outlives this process.

        The run's folder in its command line distinguishes it from orphans of the program, which
        this minder ends (task_processes.py).
        """
        reading = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._drain(reading)
            os.set_blocking(reading, True)
            with open(self._log, "ab") as log:
                self._nft = subprocess.Popen(
                    self._way + ["-i", "--includepath", self._folder],
                    stdin=reading,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=nft_program.environment(),
                    start_new_session=True,
                )
                return log.seek(0, os.SEEK_END)
        finally:
            os.close(reading)

    def _drain(self, reading: int) -> None:
        """Discard what an earlier nft has not read: it is not meant for the new one."""
        try:
            while os.read(reading, 1 << 16):
                pass
        except BlockingIOError:
            pass

    def _say(self, text: bytes, deadline: float) -> str:
        """Write all of the text. Return what went wrong; "": nothing."""
        assert self._held is not None
        while text:
            try:
                text = text[os.write(self._held, text) :]
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return "it reads nothing"
                time.sleep(_LOOK_S)
            except BrokenPipeError:
                return "it has ended"
        return ""

    def _wrong(self, name: str, began: int, deadline: float) -> str:
        """Return "" once the table exists, else what nft reports."""
        while True:
            if "flags owner" in self._listing("table", "inet", name):
                return ""
            output = self._output(began)
            ended, late = not self._has_reader(), time.monotonic() >= deadline
            if nft_program.error_in(output) or ended or late:
                last = (
                    output.strip().splitlines()
                    or ["it has ended" if ended else "no table within %g s" % WITHIN_S]
                )[-1]
                return nft_program.error_in(output) or last
            time.sleep(_LOOK_S)

    def _stands(self) -> bool:
        return (
            re.search(r"\b%s_[0-9a-f]{8}\b" % self._closed.name, self._listing("tables", "inet"))
            is not None
        )

    def _listing(self, *what: str) -> str:
        """Return what another nft lists. A question to the nft that owns the table could cost it
        its socket, and so the table."""
        return Asked(self._way + ["list", *what], env=nft_program.environment()).answer()[1]

    def _output(self, began: int) -> str:
        with open(self._log, "rb") as log:
            log.seek(began)
            return log.read(1 << 16).decode("utf-8", "replace")

    def _has_reader(self) -> bool:
        """True if an nft lives: the writer of a FIFO learns that its last reader is gone."""
        assert self._held is not None
        poll = select.poll()
        poll.register(self._held, 0)
        return not poll.poll(0)
