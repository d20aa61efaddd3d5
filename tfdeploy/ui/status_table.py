"""Draw the tasks of a run as a table of the package rich, for notebooks and terminals."""

from __future__ import annotations

from collections.abc import Iterable

from rich import get_console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tfdeploy.model.status.run_status import RunView
from tfdeploy.text.row_values import run_seconds
from tfdeploy.ui.amounts import format_duration
from tfdeploy.ui.reports import task_table
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import run_style


def status_table(view: RunView, now: float) -> Table:
    """Return the table of the run's tasks. Its title has the run's state. `now`: UTC seconds."""
    lasted = format_duration(run_seconds(view.started, view.ended, now))
    title = Text(clean(f"{view.run}  {view.mode}  "))
    title.append(clean(view.state), run_style(view.state)).append(f"  {lasted}")
    table = Table(title=title, caption=Text(clean(view.cause or "")))
    headers, rows, _ = task_table(view)
    for header in headers:
        table.add_column(header)
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table


def draw_tables(tables: Iterable[Table]) -> None:
    """Draw each table in place of the previous one, in the notebook's cell or on the terminal.

    In a notebook, IPython replaces the table, because rich would need ipywidgets to replace it.
    """
    if not get_console().is_jupyter:
        with Live(auto_refresh=False) as live:
            for table in tables:
                live.update(table, refresh=True)
        return
    from IPython.display import display

    drawn = None
    for table in tables:
        if drawn is None:
            drawn = display(table, display_id=True)
        else:
            drawn.update(table)
