"""Show the progress of a sync. On a terminal: which host sends to which, a bar for each host, and a
bar for all hosts together. Elsewhere: a line every 20 s.

Any thread may pass events; only the refresh thread of the package rich draws, at most 4 times a
second. If there are more hosts than rows, failed, stuck and slow hosts are shown first, and one row
counts the hosts that are left out.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.model.events import Event
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.task_progress import CombinedTransfers, HostProgress, sum_transfers
from tfdeploy.text.names import fold_names
from tfdeploy.ui.amounts import format_bytes, format_count, format_transfer
from tfdeploy.ui.cells import Row, Span, fit_row, pad_or_cut
from tfdeploy.ui.feeding import ActiveBroadcasts
from tfdeploy.ui.plain import PlainView, describe_event
from tfdeploy.ui.question import active
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

# The width of a bar, in columns.
_BAR = 24
# Seconds between two lines if the output is not a terminal.
_PLAIN_S = 20.0
# The errors of a closed terminal. The package rich raises SystemExit for a broken pipe.
_GONE = (OSError, SystemExit)


class SyncView:
    """A view that shows the progress of a sync: `with SyncView() as emit: sync(..., emit)`.
    `terminal`: the terminal to draw on (default: stderr)."""

    def __init__(
        self, terminal: Terminal | None = None, *, quiet: bool = False, verbose: bool = False
    ) -> None:
        self.terminal = terminal or terminal_of(sys.stderr)
        self.progress = RunProgress()
        self._lock = threading.Lock()
        self._plain = PlainView(self.terminal, quiet=quiet, verbose=verbose)
        self._noted_at = 0.0
        self._bars = None if quiet or self.terminal.width is None else _Bars(self)

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.progress.apply_event(event)
            progress_note = self._make_summary_note_if_due(event) if self._bars is None else None
        if progress_note is not None:
            self._plain(progress_note)
        if self._bars is None or event.kind not in ("transfer", "step"):
            text, style = describe_event(event, verbose=self._plain.verbose)
            if self._bars is None:
                self._plain(event)
            elif text:
                self._bars.print_line(text, style)

    def rows(self, width: int, height: int) -> list[Row]:
        """Return at most `height` rows: which host sends to which, a row for each host, a row that
        counts the hosts that do not fit, and a row that sums up all hosts."""
        with self._lock:
            hosts = [host for host in self.progress.hosts.values() if host.transfers]
            done = sum(host.synced for host in self.progress.hosts.values())
            feeding = ActiveBroadcasts(self.progress)
            hosts.sort(
                key=lambda host: (
                    not (feeding.troubles(host.host) or _has_failed(host)),
                    not host.active_transfers_to_host,
                    feeding.sort_key(host.host),
                )
            )
            trees = feeding.tree_lines(width, max(1, (height - 2) // 3))
            room = max(0, height - 2 - len(trees))
            shown = hosts if len(hosts) <= room else hosts[: max(0, room - 1)]
            rows = [fit_row([Span(line, "dim")], width) for line in trees]
            rows += [_host_row(host, width, feeding) for host in shown]
            if len(shown) < len(hosts) and room:
                rows.append(_hidden_hosts_row(hosts[len(shown) :], width))
            moving = [transfer for host in hosts for transfer in host.transfers.values()]
            if moving:
                done_text = f"{done} of {len(self.progress.hosts)} hosts done"
                rows.append(_bar_row("all", sum_transfers(moving), width, done_text))
            return rows

    def _make_summary_note_if_due(self, event: Event) -> Event | None:
        """Return a note about the progress of all hosts if `event` is the progress of a transfer
        and the last note is at least _PLAIN_S seconds old. Otherwise return None."""
        if event.kind != "transfer" or event.data.get("state") != "moving":
            self._noted_at = self._noted_at or event.time
            return None
        if event.time - self._noted_at < _PLAIN_S:
            return None
        self._noted_at = event.time
        text = ", ".join(self._summary_parts(event.data["what"]))
        return Event("note", event.time, data={"level": "info", "text": text})

    def _summary_parts(self, what: str) -> Iterator[str]:
        """Yield the parts of the note about the transfer `what`: 'data digits: 1.2 GB of 4.1 GB on
        16 hosts, 91 MB/s, 32 s left', then 'slow: n3'."""
        hosts = [host for host in self.progress.hosts.values() if what in host.transfers]
        totals = sum_transfers(host.transfers[what] for host in hosts)
        on_hosts = f" on {format_count(len(hosts), 'host')}"
        yield f"{what}: {format_transfer(totals, on_hosts)}"
        if fields := self.progress.broadcasts.get(what):
            for word, names in (("slow", fields["slow"]), ("stuck", fields["stuck"])):
                if names:
                    yield f"{word}: {fold_names(names)}"

    def __enter__(self) -> SyncView:
        if self._bars:
            self._bars.resume()
            active.append(self._bars)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            active.remove(self._bars)
            self._bars.pause()


class _Bars:
    """Draws the rows of a SyncView with the class Live of the package rich. Lines that arrive
    during a pause are printed at the end of the pause."""

    def __init__(self, view: SyncView) -> None:
        from rich.console import Console

        self.view = view
        terminal = view.terminal
        self.console = Console(file=terminal.stream, no_color=not terminal.color, highlight=False)
        self.live: Live | None = None
        self._lock = threading.Lock()
        self._waiting_lines: list[tuple[str, str]] = []

    def resume(self) -> None:
        from rich.live import Live

        # The display (rich.live.Live) is made anew each time, because a Live that is started again
        # would first erase as many rows as it drew last.
        live = Live(
            self,
            console=self.console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with self._lock, suppress(*_GONE):
            self.live = live
            live.start()
            for text, style in self._waiting_lines:
                self._print(text, style)
            self._waiting_lines.clear()

    def pause(self) -> None:
        with self._lock:
            live, self.live = self.live, None
            if live is not None:
                with suppress(*_GONE):
                    live.stop()

    def print_line(self, text: str, style: str) -> None:
        with self._lock:
            if self.live is None:
                self._waiting_lines.append((text, style))
            else:
                self._print(text, style)

    def _print(self, text: str, style: str) -> None:
        from rich.text import Text

        with suppress(*_GONE):
            self.console.print(Text(text, style=style), soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from tfdeploy.ui.screen import RenderableRows

        # Two columns stay free for the "^C" that the terminal writes behind the last row. If "^C"
        # began a new line, `Live` would leave one row on the screen.
        yield RenderableRows(self.view.rows(options.max_width - len("^C"), console.height))


def _has_failed(host: HostProgress) -> bool:
    return host.state in ("unreachable", "failed") or any(
        transfer.state == "failed" for transfer in host.transfers.values()
    )


def _host_row(host: HostProgress, width: int, feeding: ActiveBroadcasts) -> Row:
    if _has_failed(host):
        word = host.state if host.state == "unreachable" else "failed"
        return fit_row(
            [Span(pad_or_cut(clean(host.host), 12)), Span(f" {word}", "bold red")], width
        )
    name = clean(host.host)
    if not host.active_transfers_to_host:
        state = "done" if host.synced else "checking"
        return _bar_row(name, sum_transfers(host.transfers.values()), width, state)
    details = [clean(transfer.what, 40) for transfer in host.active_transfers_to_host]
    details += [f"from {parent}" for parent in feeding.parents(host.host)]
    mark = ", ".join(feeding.troubles(host.host))
    return _bar_row(
        name, sum_transfers(host.active_transfers_to_host), width, ", ".join(details), mark
    )


def _hidden_hosts_row(hosts: list[HostProgress], width: int) -> Row:
    """Return the row that sums up all hosts without a row of their own.

    For example, '9 more' in the first column, then '3 done, 40 MB to 44 MB, 5.6 MB/s to 5.9 MB/s'.
    The ranges are the smallest and the largest value of the hosts that are not done."""
    active = [
        sum_transfers(host.active_transfers_to_host)
        for host in hosts
        if host.active_transfers_to_host
    ]
    done = len(hosts) - len(active)
    parts = [f"{done} done"] if done else []
    sent = [totals.sent_bytes for totals in active]
    rates = [totals.bytes_per_s for totals in active if totals.bytes_per_s]
    for figures, unit in ((sent, ""), (rates, "/s")):
        if figures:
            limits = (f"{format_bytes(limit)}{unit}" for limit in (min(figures), max(figures)))
            parts.append(" to ".join(dict.fromkeys(limits)))
    head = Span(pad_or_cut(f"{len(hosts):,} more", 12), "bold")
    return fit_row([head, Span(f" {', '.join(parts)}", "dim")], width)


def _bar_row(name: str, totals: CombinedTransfers, width: int, details: str, mark: str = "") -> Row:
    """Return a row with a bar, cut to `width` columns: 'n2   ######...... 12 MB of 60 MB, 5.0 MB/s,
    9.6 s left  code'. A narrow row has a percentage in place of the bar."""
    sent, total = totals[:2]
    full = round(_BAR * sent / total) if total else _BAR
    row = [Span(pad_or_cut(name, 12), "bold"), Span(" ")]
    if width >= 60:
        row += [Span("#" * full, "green"), Span("." * (_BAR - full) + " ", "dim")]
    else:
        row.append(Span(f"{100 * sent // total if total else 100:3} % "))
    row.append(Span(format_transfer(totals)))
    return fit_row(
        [*row, Span(f"  {mark}" if mark else "", "bold yellow"), Span(f"  {details}", "dim")], width
    )
