"""The progress of a sync: on a terminal a bar per host and one for all hosts, elsewhere one line per host.

Events come from any thread; only rich's refresh thread draws, at most 8 times a second.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from tfdeploy.model.events import Event
from tfdeploy.model.progress import HostProgress, RunProgress
from tfdeploy.model.transfers import all_of
from tfdeploy.ui.amounts import in_bytes, in_seconds
from tfdeploy.ui.cells import Row, Span, column, fit
from tfdeploy.ui.plain import PlainView, event_words
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_BAR = 24
_GONE = (OSError, SystemExit)  # the terminal was closed; rich makes SystemExit of a broken pipe


class SyncView:
    """`with SyncView() as emit: sync(..., emit)`. `terminal`: where it is drawn (default: stderr)."""

    def __init__(self, terminal: Terminal | None = None, *, quiet: bool = False, verbose: bool = False) -> None:
        self.terminal = terminal or terminal_of(sys.stderr)
        self.progress = RunProgress()
        self._lock = threading.Lock()
        self._plain = PlainView(self.terminal, quiet=quiet, verbose=verbose)
        self._bars = None if quiet or self.terminal.width is None else _Bars(self)

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.progress.apply(event)
        if self._bars is None or event.kind not in ("transfer", "step"):
            text, style = event_words(event, verbose=self._plain.verbose)
            if self._bars is None:
                self._plain(event)
            elif text:
                self._bars.print_line(text, style)

    def rows(self, width: int, height: int) -> list[Row]:
        """A row per host, active ones first, as many as fit; the last row is the sum."""
        with self._lock:
            hosts = [host for host in self.progress.hosts.values() if host.transfers]
            done = sum(host.synced for host in self.progress.hosts.values())
            hosts.sort(key=_is_done)
            shown = hosts[: max(0, height - 2)]
            rows = [_host_row(host, width) for host in shown]
            moving = [transfer for host in hosts for transfer in host.transfers.values()]
            if moving:
                words = f"{done} of {len(self.progress.hosts)} hosts done" if self.progress.hosts else ""
                rows.append(_bar_row("all", all_of(moving), width, words))
            return rows

    def __enter__(self) -> SyncView:
        if self._bars:
            with suppress(*_GONE):
                self._bars.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars:
            with suppress(*_GONE):
                self._bars.live.stop()


class _Bars:
    """The rows of a SyncView under rich's Live."""

    def __init__(self, view: SyncView) -> None:
        from rich.console import Console
        from rich.live import Live

        self.view = view
        color = None if view.terminal.color else "never"
        self.console = Console(file=view.terminal.stream, no_color=color is not None, highlight=False)
        self.live = Live(
            self, console=self.console, refresh_per_second=8, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def print_line(self, text: str, style: str) -> None:
        from rich.text import Text

        with suppress(*_GONE):
            self.console.print(Text(text, style=style), soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from tfdeploy.ui.screen import Picture

        yield from Picture(self.view.rows(options.max_width, console.height)).__rich_console__(console, options)


def _is_done(host: HostProgress) -> bool:
    return not any(transfer.active for transfer in host.transfers.values())


def _host_row(host: HostProgress, width: int) -> Row:
    if host.state in ("unreachable", "failed"):
        return fit([Span(column(clean(host.host), 12)), Span(f" {host.state}", "bold red")], width)
    active = [transfer for transfer in host.transfers.values() if transfer.active]
    if not active:
        return _bar_row(clean(host.host), all_of(host.transfers.values()), width, "done" if host.synced else "checking")
    return _bar_row(clean(host.host), all_of(active), width, ", ".join(clean(transfer.what, 40) for transfer in active))


def _bar_row(name: str, figures: tuple[int, int, float | None, float | None], width: int, words: str) -> Row:
    """'n2   [######......] 12 MB of 60 MB, 5.0 MB/s, 9.6 s left  code', as much of it as fits."""
    sent, total, rate, left_s = figures
    full = round(_BAR * sent / total) if total else _BAR
    row = [Span(column(name, 12), "bold"), Span(" ")]
    if width >= 60:
        row += [Span("#" * full, "green"), Span("." * (_BAR - full) + " ", "dim")]
    else:
        row.append(Span(f"{100 * sent // total if total else 100:3} % "))
    return fit([*row, Span(", ".join(_amounts(sent, total, rate, left_s))), Span(f"  {words}", "dim")], width)


def _amounts(sent: int, total: int, rate: float | None, left_s: float | None) -> Iterator[str]:
    yield f"{in_bytes(sent)} of {in_bytes(total)}"
    if rate:
        yield f"{in_bytes(rate)}/s"
    if left_s is not None:
        yield f"{in_seconds(left_s)} left"
