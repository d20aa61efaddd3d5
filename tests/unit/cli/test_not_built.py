"""What the contract has and tfdeploy has not yet: refused by its name, and named in the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfdeploy.cli import main as frame
from tfdeploy.config import reference

README = Path(__file__).resolve().parents[3] / "README.md"


@pytest.mark.parametrize("host", [False, True])
def test_a_key_that_is_not_built_is_refused_by_name(
    host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for dotted in reference.not_built(reference.HOST if host else reference.JOB):
        group, _, name = dotted.rpartition(".")
        line = f"{group}: {{{name}: 1}}" if group else f"{name}: 1"
        if host:
            Path("hosts.yaml").write_text(f"hosts: {{n1: {{{line}}}}}")
            assert frame.main(["inventory", "-i", "hosts.yaml"]) == 2
        else:
            Path("tfdeploy.yaml").write_text(line)
            assert frame.main(["sync", "-i", "hosts.yaml"]) == 2
        assert f"{dotted}` is not built yet" in capsys.readouterr().err


def test_the_readme_names_exactly_what_is_not_built() -> None:
    told = re.search(r"## Not built yet\n\n(.*?)\n\n", README.read_text(), re.DOTALL)
    named = set(re.findall(r"`([^`]+)`", told[1])) if told else set()
    assert named == {*reference.not_built(reference.HOST), *reference.not_built(reference.JOB)}


def test_the_reference_has_no_heading_without_words() -> None:
    for line in reference.reference_text().splitlines():
        assert not line.endswith("  "), line
    assert ("NOT BUILT YET" in reference.reference_text()) == bool(reference.all_not_built())
