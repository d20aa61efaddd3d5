"""Show a page in headless Chromium, or record which file a browser is asked to open.

The first Chromium on PATH that starts is used. Without Chromium the test is skipped, and the end of
the test session reports that.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.waiting import wait_for

NAMES = ("chromium", "chromium-browser", "google-chrome")


@functools.cache
def find_browser() -> str | None:
    """Return the first browser on PATH that starts, or None.

    On Ubuntu, chromium-browser may be a script that only advises to install another package.
    """
    programs = [program for name in NAMES if (program := shutil.which(name))]
    return next((each for each in programs if _can_start(each)), None)


def _can_start(browser: str) -> bool:
    try:
        return not subprocess.run(
            [browser, "--version"], capture_output=True, timeout=60
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def load_in_browser(url: str, profile: Path, *args: str) -> tuple[str, str]:
    """Return the document after the browser has rendered the page, and the errors on the browser's
    console.
    """
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium on PATH: NOT TESTED in a browser")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
    ]
    command = [browser, *flags, "--enable-logging=stderr", *args, "--dump-dom", url]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return shown.stdout, "\n".join(
        line for line in shown.stderr.splitlines() if "CONSOLE" in line or "Security Policy" in line
    )


class RecordingBrowser:
    """A program for $BROWSER that records its arguments, the file that it is asked to show, and the
    modes of that file and its folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.program, self._words, self._page = (
            folder / "browser",
            folder / "words",
            folder / "page",
        )
        self.program.write_text(
            "#!/bin/sh\n"
            f'p=${{1#file://}}; echo "$@" > {self._words}.new; (stat -c %a "${{p%/*}}" "$p"; cat '
            f'"$p") > {self._page}\n'
            f"mv {self._words}.new {self._words}\n"
        )
        self.program.chmod(0o755)

    def assert_led_to(self, url: str) -> Path:
        """Check that the browser was asked to open a file that redirects to `url`, and that no
        other user could read this file. Return the file.
        """
        fields = wait_for(
            lambda: self._words.exists() and self._words.read_text().split(),
            20,
            "the browser was started",
        )
        assert urlsplit(url).path.strip("/") not in " ".join(fields)
        folder_mode, mode, page = self._page.read_text().split("\n", 2)
        assert (folder_mode, mode) == ("700", "600") and f"0;url={url}" in page
        return Path(fields[0].removeprefix("file://"))
