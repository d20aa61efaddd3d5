"""Where the control machine keeps its caches: $XDG_STATE_HOME/tfdeploy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_root(environ: Mapping[str, str]) -> Path:
    """$XDG_STATE_HOME/tfdeploy, by default ~/.local/state/tfdeploy. Nothing is created."""
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        base = str(Path(environ.get("HOME") or "/tmp") / ".local" / "state")
    return Path(base) / "tfdeploy"
