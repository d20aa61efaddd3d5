"""Test requirements.lock, the pinned requirements of tfdeploy on the control machine."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PIN = re.compile(r"^([\w.-]+)==([^ \\]+)", re.MULTILINE)
_NEED = re.compile(r'^  "([A-Za-z][\w-]*)', re.MULTILINE)
RENEW = "make lock renews it"


def pins(name: str) -> set[tuple[str, str]]:
    return set(_PIN.findall((ROOT / name).read_text()))


def test_lock_has_all_requirements_and_only_tested_versions() -> None:
    runtime, tested = pins("requirements.lock"), pins("requirements-dev.lock")
    project = (ROOT / "pyproject.toml").read_text()
    needs = _NEED.findall(project.partition("\ndependencies = [")[2].partition("]")[0])
    assert needs and {name.lower() for name in needs} <= {name for name, _ in runtime}, RENEW
    assert runtime <= tested, RENEW
    assert {name for name, _ in runtime}.isdisjoint({"tensorflow", "pytest", "mypy"}), RENEW


def test_every_pin_has_hash() -> None:
    for block in re.split(r"^(?=\w)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE):
        assert "==" not in block or "--hash=sha256:" in block, RENEW
