"""Test for which versions of rsync tfdeploy warns about known flaws."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfdeploy.transport.rsync import flaws


@pytest.fixture(autouse=True)
def _afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    flaws.describe_flaws.cache_clear()
    monkeypatch.setattr(flaws, "_DOCS", tmp_path)
    yield
    flaws.describe_flaws.cache_clear()


@pytest.mark.parametrize(
    ("version_line", "warned"),
    [("3.2.7", True), ("3.4.1", True), ("3.4.4", True), ("v3.5.0", False), ("10.0", False)],
)
def test_rsync_before_3_5_0_gives_warning(
    version_line: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        flaws,
        "_output",
        lambda *argv: (
            f"rsync  version {version_line}  protocol".encode() if argv[0] == "rsync" else b""
        ),
    )
    assert (flaws.describe_flaws() is not None) == warned


def test_rsync_patched_by_distribution_gives_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        flaws, "_output", lambda *argv: b"rsync  version 3.2.7" if argv[0] == "rsync" else b""
    )
    monkeypatch.setattr(flaws.shutil, "which", lambda name: "/usr/bin/rsync")
    (tmp_path / "changelog.Debian.gz").write_bytes(
        gzip.compress(b"rsync (3.2.7-1+deb12u2)\n  * Fix CVE-2026-70458\n")
    )
    assert flaws.describe_flaws() is None
    monkeypatch.setattr(flaws.shutil, "which", lambda name: "/opt/rsync")
    flaws.describe_flaws.cache_clear()
    assert flaws.describe_flaws() is not None
