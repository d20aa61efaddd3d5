"""Open pages in the operator's browser, and keep secret addresses off command lines."""

from __future__ import annotations

import html
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfdeploy.cli.output import print_message

_REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}"><a '
    'href="{url}">the page</a>\n'
)


def open_in_browser(url: str) -> None:
    """Open a page whose address is not secret.

    The address becomes an argument of the browser, so every user of this machine can read it.
    """
    import webbrowser

    if not webbrowser.open(url):
        print_message("cannot open a browser on this machine")


@contextmanager
def open_secret_url(url: str) -> Iterator[None]:
    """Open a page whose address is secret, through a private file that redirects to the address.

    The file is removed at the end of the `with` block. A browser from a snap or flatpak may be
    unable to read the file, so the verb also prints the address.
    """
    folder = tempfile.mkdtemp(prefix="tfdeploy-", dir=_find_private_folder())  # mode 0700
    try:
        page = Path(folder, "page.html")
        with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_REDIRECT.format(url=html.escape(url)))
        open_in_browser(page.as_uri())
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_private_folder() -> str:
    """Return $XDG_RUNTIME_DIR if only this user can access it, else the folder for temporary
    files."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(folder) and os.path.isdir(folder):
        status = os.stat(folder)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700:
            return folder
    return tempfile.gettempdir()
