"""The run's nftables table on this host. It stands for as long as the minder or a supervisor lives,
however they end.

nft reads a FIFO in the run's folder, whose writing end the minder and the supervisors hold
(RunPaths.hold_firewall). When the last of them is gone, nft's input ends, nft ends, and the kernel
removes the table that it owned. It needs no signal.
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
    """What of the part is closed on this host."""
    own = [spec.port or spec.own_port for spec in part.tasks]
    own += [minder.port for minder in part.mesh if minder.host == part.host]
    here = {
        address for minder in part.mesh if minder.host == part.host for address in minder.addresses
    }
    elsewhere = [
        end
        for minder in part.mesh
        if minder.host != part.host
        for end in _ends(part, minder)
        if end[0] not in here
    ]
    ports = tuple(port for port in own if port is not None)
    name = nft.table_name(paths.host_dir, part.run)
    return nft.Closed(name, os.geteuid(), ports, tuple(part.allowed), tuple(elsewhere))


def _ends(part: wire.HostPart, minder: wire.MeshHost) -> List[Tuple[str, int]]:
    """The addresses and ports of the run on another host. Some may be this host's own too: bridges
    of containers are alike."""
    ports = {minder.port} | {
        int(peer.address.rpartition(":")[2])
        for peer in part.peers
        if peer.host == minder.host and peer.address
    }
    return [(address, port) for address in minder.addresses for port in sorted(ports)]


def stand(
    paths: RunPaths, part: wire.HostPart, takes_over: bool, journal: Callable[..., None]
) -> Firewall:
    """The run's table, before anything listens. Raises FirewallRefused.

    A minder that takes over goes on without one that cannot be made now, and tries again."""
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
        """Returns once the table stands: that of a minder before, or a new one. Raises
        FirewallRefused, OSError."""
        if self._has_reader() and not self._find_way() and self._stands():
            return
        self._make(WITHIN_S)

    def restore(self) -> str:
        """Makes the table again where its nft was killed, which takes root. What happened, in
        words; "": nothing.

        The journal has it: until then only the filter of the ports themselves, if there is one,
        kept strangers out."""
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
        """The table stands, or the journal says why it does not."""
        said = self.restore()
        if said and said != self._noted:
            journal("firewall", why=said)
            self._noted = said

    def close(self) -> None:
        """This process needs it no longer."""
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
        """Finds how nft is started, once. Returns why there is no way; "": there is one."""
        refused = ""
        if not self._way:
            way, refused = nft_program.read(nft_program.start())
            self._way = way or []
        return refused

    def _start(self) -> int:
        """nft, with the FIFO as its input; returns where its output begins in the log. It outlives
        this process.

        The run's folder in its command line tells it from orphans of the program, which this minder
        ends: task_processes.py."""
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
        """What an nft before this one has not read is not for this one."""
        try:
            while os.read(reading, 1 << 16):
                pass
        except BlockingIOError:
            pass

    def _say(self, text: bytes, deadline: float) -> str:
        """Writes it all. Returns what went wrong."""
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
        """ "" once the table stands, else what nft says."""
        while True:
            if "flags owner" in self._listing("table", "inet", name):
                return ""
            said = self._output(began)
            ended, late = not self._has_reader(), time.monotonic() >= deadline
            if nft_program.error_in(said) or ended or late:
                last = (
                    said.strip().splitlines()
                    or ["it has ended" if ended else "no table within %g s" % WITHIN_S]
                )[-1]
                return nft_program.error_in(said) or last
            time.sleep(_LOOK_S)

    def _stands(self) -> bool:
        return (
            re.search(r"\b%s_[0-9a-f]{8}\b" % self._closed.name, self._listing("tables", "inet"))
            is not None
        )

    def _listing(self, *what: str) -> str:
        """What another nft lists: asking the one that owns the table could cost it its socket, and
        so the table."""
        return Asked(self._way + ["list", *what], env=nft_program.environment()).answer()[1]

    def _output(self, began: int) -> str:
        with open(self._log, "rb") as log:
            log.seek(began)
            return log.read(1 << 16).decode("utf-8", "replace")

    def _has_reader(self) -> bool:
        """Whether an nft lives: a FIFO whose last reader is gone says so to its writers."""
        assert self._held is not None
        poll = select.poll()
        poll.register(self._held, 0)
        return not poll.poll(0)
