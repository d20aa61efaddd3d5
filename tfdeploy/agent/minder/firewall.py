"""Create the run's nftables table on this host. The table exists as long as the run's minder (the
agent's daemon for the run on this host) or the supervisor of a task lives.

A process of nft owns the table and reads its commands from a FIFO in the run's folder. The minder
and the supervisors keep the writing end of the FIFO open (RunPaths.open_firewall_fifo). When the
last of them ends, even by SIGKILL, nft reaches the end of its input and ends too. The kernel then
removes the table, because its owner is gone.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Callable, List, Optional, Tuple
from tfdeploy.agent.host.installed import StartedProgram
from tfdeploy.agent.host.network import nft, nft_program
from tfdeploy.agent.minder.held_ports import FirewallRefused
from tfdeploy.agent.run.folder import RunPaths

WITHIN_S = 10.0  # how long creating the table may take when the minder starts
# How long creating a lost table again may take. Short, because the minder does nothing else
# meanwhile.
AGAIN_WITHIN_S = 2.0
PAUSE_S = 5.0  # the pause between two tries to create a lost table again
_POLL_S = 0.02  # the pause between two checks of what nft has done
_TRIES = 2  # The first try may fail because another program changes tables at the same moment.
_QUIT = b"\nquit\n"


def ports_to_close(paths: RunPaths, part: wire.HostPart) -> nft.ClosedPorts:
    """Return which ports the run's firewall closes on this host, and which addresses may still use
    them."""
    own_minders = [minder for minder in part.mesh if minder.host == part.host]
    ports = [spec.port or spec.own_port for spec in part.tasks] + [
        minder.port for minder in own_minders
    ]
    own_addresses = {address for minder in own_minders for address in minder.addresses}
    elsewhere = tuple(
        endpoint
        for minder in part.mesh
        if minder not in own_minders
        for endpoint in _endpoints_of(part, minder)
        if endpoint[0] not in own_addresses
    )
    name = nft.table_name_prefix(paths.host_dir, part.run)
    return nft.ClosedPorts(
        name, os.geteuid(), tuple(filter(None, ports)), tuple(part.allowed), elsewhere
    )


def _endpoints_of(part: wire.HostPart, minder: wire.MeshHost) -> List[Tuple[str, int]]:
    """Return the (address, port) pairs at which the minder and the tasks of another host listen.
    Some of these addresses may be addresses of this host too, because container bridges often have
    the same address on many hosts. The caller leaves these out."""
    ports = {minder.port} | {
        int(peer.address.rpartition(":")[2])
        for peer in part.peers
        if peer.host == minder.host and peer.address
    }
    return [(address, port) for address in minder.addresses for port in sorted(ports)]


def start_firewall(
    paths: RunPaths, part: wire.HostPart, takes_over: bool, journal: Callable[..., None]
) -> Firewall:
    """Create the run's table before any port listens. Raises FirewallRefused.

    `takes_over`: True if this minder replaces a dead one. The run then continues without the table
    if it cannot be created now, and the minder tries again later.
    """
    try:
        firewall = Firewall(paths, ports_to_close(paths, part))
    except (OSError, ValueError) as error:
        raise FirewallRefused(str(error)) from error
    try:
        firewall.create_table_if_missing()
    except (FirewallRefused, OSError) as error:
        if not takes_over:
            firewall.close()
            raise FirewallRefused(str(error)) from error
        journal("firewall", why=str(error))
    return firewall


class Firewall:
    def __init__(self, paths: RunPaths, closed: nft.ClosedPorts) -> None:
        """Create the FIFO and check `closed`. Raises ValueError if `closed` contains an invalid
        address or port. Raises OSError."""
        self._folder = paths.host_dir
        self._path, self._log = paths.file(layout.FIREWALL_FIFO), paths.file(layout.FIREWALL_LOG)
        # The result is not used. This call reports an invalid address before the run starts.
        nft.build_table(closed)
        self._closed = closed
        self._command: List[str] = []
        self._next_try = 0.0
        self._noted = ""
        try:
            os.mkfifo(self._path, 0o600)
        except FileExistsError:
            pass
        self._held: Optional[int] = paths.open_firewall_fifo()

    def create_table_if_missing(self) -> None:
        """Create the table, unless an earlier minder has created it, and return once it exists.
        Raises FirewallRefused, OSError."""
        if self._is_nft_reading() and not self._find_nft_command() and self._has_table():
            return
        self._create_table(WITHIN_S)

    def recreate_lost_table(self) -> str:
        """Create the table again if the nft process that owns it was killed, which only root can
        do. Return a sentence for the journal that says what happened, or "" if nothing happened.

        Until the table exists again, only the filters of the run's sockets (if it has any) keep
        strangers out.
        """
        now = time.monotonic()
        if self._held is None or self._is_nft_reading() or now < self._next_try:
            return ""
        self._next_try = now + PAUSE_S
        try:
            self._create_table(AGAIN_WITHIN_S)
        except (FirewallRefused, OSError) as error:
            return "the run's firewall table was removed, and cannot be created again: %s" % error
        return "the run's firewall table was removed, and has been created again"

    def restore_and_journal(self, journal: Callable[..., None]) -> None:
        """Create the table again if it was lost, and record in the journal what happened. A
        sentence that repeats the previous one is not recorded."""
        event = self.recreate_lost_table()
        if event and event != self._noted:
            journal("firewall", why=event)
            self._noted = event

    def close(self) -> None:
        """Close this process's end of the FIFO, because this process no longer needs the table."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    # --- controlling the nft process

    def _create_table(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        problem = self._find_nft_command()
        if problem:
            raise FirewallRefused(problem)
        for _ in range(_TRIES):
            log_begin = self._start_nft()
            # An old nft process may still run and own a table of this run. So each table has a new
            # name.
            name = "%s_%s" % (self._closed.name, os.urandom(4).hex())
            text = nft.build_table(self._closed._replace(name=name)).encode("ascii")
            problem = self._write_to_nft(text, deadline) or self._await_table(
                name, log_begin, deadline
            )
            if not problem:
                return
            # The supervisors hold the FIFO open, so an nft process that an earlier minder started
            # may still read it, and get the commands instead. That nft process must end before the
            # next try.
            self._write_to_nft(_QUIT, deadline)
            while self._is_nft_reading() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        raise FirewallRefused("nft: " + problem)

    def _find_nft_command(self) -> str:
        """Find a command line that starts nft, unless an earlier call has found one. Return "" if
        nft can be started. Otherwise return why it cannot be started."""
        refused = ""
        if not self._command:
            command, refused = nft_program.find_working_command(nft_program.start_checks())
            self._command = command or []
        return refused

    def _start_nft(self) -> int:
        """Start nft with the FIFO as its input. Return the position in the log file at which the
        output of this nft begins. nft does not end when this process ends.

        The command line of nft contains the run's folder. By this folder, task_processes.py
        recognises that nft is no orphaned process of a task and must not be ended with such
        orphans.
        """
        read_descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self._drain_fifo(read_descriptor)
            os.set_blocking(read_descriptor, True)
            with open(self._log, "ab") as log:
                self._nft = subprocess.Popen(
                    self._command + ["-i", "--includepath", self._folder],
                    stdin=read_descriptor,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=nft_program.nft_environment(),
                    start_new_session=True,
                )
                return log.seek(0, os.SEEK_END)
        finally:
            os.close(read_descriptor)

    def _drain_fifo(self, read_descriptor: int) -> None:
        """Discard what an earlier nft has left unread in the FIFO, so that the new nft does not
        read it."""
        try:
            while os.read(read_descriptor, 1 << 16):
                pass
        except BlockingIOError:
            pass

    def _write_to_nft(self, text: bytes, deadline: float) -> str:
        """Write the whole text to the FIFO. Return "", or what went wrong."""
        assert self._held is not None
        while text:
            try:
                text = text[os.write(self._held, text) :]
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return "the program does not read its input"
                time.sleep(_POLL_S)
            except BrokenPipeError:
                return "the program has ended"
        return ""

    def _await_table(self, table: str, log_begin: int, deadline: float) -> str:
        """Wait until the table exists, and return "". If nft reports an error, ends, or has not
        created the table by the deadline, return a sentence that says so."""
        while True:
            if "flags owner" in self._list_tables("table", "inet", table):
                return ""
            output = self._read_output(log_begin)
            error = nft_program.first_error(output)
            ended, late = not self._is_nft_reading(), time.monotonic() >= deadline
            if error or ended or late:
                why = "the program ended" if ended else "it created no table in time"
                return error or (output.strip() or why).splitlines()[-1]
            time.sleep(_POLL_S)

    def _has_table(self) -> bool:
        pattern = r"\b%s_[0-9a-f]{8}\b" % self._closed.name
        return bool(re.search(pattern, self._list_tables("tables", "inet")))

    def _list_tables(self, *arguments: str) -> str:
        """Run `nft list` with these arguments in a separate process, and return its output. The nft
        process that owns the table must not do this: it could lose its netlink socket, and the
        kernel would then remove the table."""
        return StartedProgram(
            self._command + ["list", *arguments], env=nft_program.nft_environment()
        ).read_output()[1]

    def _read_output(self, log_begin: int) -> str:
        with open(self._log, "rb") as log:
            log.seek(log_begin)
            return log.read(1 << 16).decode("utf-8", "replace")

    def _is_nft_reading(self) -> bool:
        """Return True if an nft process has the FIFO open for reading. poll() reports an error for
        a FIFO without a reader."""
        assert self._held is not None
        poll = select.poll()
        poll.register(self._held, 0)
        return not poll.poll(0)
