"""Test in which folder tfdeploy stores its state, with and without the variable HOME."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.cli.main import main
from tfdeploy.errors import Refused
from tfdeploy.store.places import state_root


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_home_comes_from_password_database_if_not_set(home: str | None) -> None:
    known = pwd.getpwuid(os.geteuid()).pw_dir
    assert state_root({} if home is None else {"HOME": home}) == Path(
        known, ".local/state/tfdeploy"
    )


def test_error_for_user_without_home_names_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(*_: object) -> Any:
        raise KeyError("uid not found")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(Refused, match="no home folder"):
        state_root({})
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert main(["lab", "status"]) == 3
    assert "export HOME=FOLDER" in capsys.readouterr().err
    assert state_root({"XDG_STATE_HOME": "/s"}) == Path("/s/tfdeploy")
