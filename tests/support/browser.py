"""A page in headless Chromium, any on PATH. Without one the test is skipped, and the end of the suite says so."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def seen_in_browser(url: str, profile: Path, *words: str) -> tuple[str, str]:
    """The document after it is shown, and what the browser complained of."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium on PATH: NOT TESTED in a browser")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
    command = [browser, *flags, "--enable-logging=stderr", *words, "--dump-dom", url]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return shown.stdout, "\n".join(line for line in shown.stderr.splitlines() if "CONSOLE" in line or "Security Policy" in line)
