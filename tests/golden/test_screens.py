"""Compare each screen of the dashboard, as a terminal emulator shows it, with a recorded one.

`PYTHONPATH=scripts:tests python tests/golden/test_screens.py --write` writes the screens and the
pictures of docs/dashboard.md. Look at each of them before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pyte = pytest.importorskip("pyte")

from dashboard_svg import as_svg  # noqa: E402
from support.screens import SCREENS, Scene, dashboard_of, terminal_bytes  # noqa: E402
from tfdeploy.ui.dashboard.frame import compose_frame  # noqa: E402

FOLDER = Path(__file__).parent / "screens"
DOCS = Path(__file__).parents[2] / "docs"
PICTURES = ("straggler", "crash-loop-task", "cut-host", "waiting", "keras-curves")


def shown(scene: Scene) -> str:
    """Return the text of the screen. A character that is two columns wide appears only once in the
    text.
    """
    screen = pyte.Screen(scene.width, scene.height)
    # On a real terminal, the terminal driver converts the newlines. The emulator has no driver.
    pyte.Stream(screen).feed(terminal_bytes(scene).replace("\n", "\r\n"))
    return "\n".join(row.rstrip() for row in screen.display) + "\n"


@pytest.mark.parametrize("name", SCREENS)
def test_screen_is_as_recorded(name: str) -> None:
    assert shown(SCREENS[name]) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_recorded_screen_has_scene() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(SCREENS)


def test_every_picture_in_docs_has_scene() -> None:
    assert {path.stem for path in DOCS.glob("screen-*.svg")} == {
        f"screen-{name}" for name in PICTURES
    }


if __name__ == "__main__" and "--write" in sys.argv:
    FOLDER.mkdir(exist_ok=True)
    for name, scene in SCREENS.items():
        (FOLDER / f"{name}.txt").write_text(shown(scene), encoding="utf-8")
    for name in PICTURES:
        board, now = dashboard_of(SCREENS[name])
        rows = compose_frame(board.scene, SCREENS[name].width, SCREENS[name].height, now)
        (DOCS / f"screen-{name}.svg").write_text(
            as_svg(rows, title="tfdeploy status --watch"), encoding="utf-8"
        )
    board, now = dashboard_of(SCREENS["healthy"])
    (DOCS / "dashboard.svg").write_text(
        as_svg(compose_frame(board.scene, 110, 30, now)), encoding="utf-8"
    )
