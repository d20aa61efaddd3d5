"""Redirect the names that tfdeploy remembers for completion, so that tests do not write them to the
developer's own state folder.
"""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def separate_state_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
