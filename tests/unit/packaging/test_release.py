"""Test scripts/release in a scratch repository that has the files of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.files.code_tree import git

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Return the files of this checkout, including files that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture
def repository(tmp_path: Path, files: list[str]) -> Path:
    """Return a repository in which scripts/release can make a release."""
    folder = tmp_path / "repository"
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("(unreleased)", "(2026-11-28)"))
    git(folder, "init")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "-m", "all files")


def release(folder: Path, *flags: str, tests: str = "true") -> subprocess.CompletedProcess[str]:
    variables = {"PYTHON": sys.executable, "TESTS": tests, "GIT_COMMITTER_NAME": "me"}
    variables |= {"GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        ["sh", "scripts/release", *flags],
        cwd=folder,
        env={**os.environ, **variables, "GIT_COMMITTER_EMAIL": "me@example.org"},
        capture_output=True,
        text=True,
        check=False,
    )


def tags(folder: Path) -> str:
    return subprocess.run(
        ["git", "tag"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_dry_run_builds_without_tag(repository: Path) -> None:
    done = release(repository, "--dry-run", tests="false")
    assert done.returncode == 0 and tags(repository) == "", done.stderr
    assert "dist/tfdeploy-0.1.0.tar.gz" in done.stdout


def test_release_is_built_and_tagged_but_not_uploaded(repository: Path) -> None:
    done = release(repository)
    assert done.returncode == 0, done.stderr
    assert tags(repository) == "v0.1.0"
    assert "uv publish --publish-url URL-OF-YOUR-INDEX dist/tfdeploy-0.1.0.tar.gz" in done.stdout
    second_release = release(repository)
    assert second_release.returncode == 1 and "the tag v0.1.0 exists" in second_release.stderr


def test_file_missing_from_source_distribution_is_named(repository: Path) -> None:
    (repository / "new").mkdir()
    (repository / "new/page.html").write_text("")
    commit(repository)
    done = release(repository)
    assert done.returncode == 1 and tags(repository) == ""
    assert "the source distribution lacks ['new/page.html']" in done.stderr


def test_release_is_refused_before_anything_is_built(repository: Path) -> None:
    assert "`false` failed" in release(repository, tests="false").stderr
    (repository / "README.md").write_text("changed")
    assert "the tree is dirty" in release(repository).stderr
    git(repository, "checkout", "README.md")
    for page, text, message in (
        ("CHANGELOG.md", "## 0.1.0 (unreleased)\n", "CHANGELOG.md has no heading `## 0.1.0 ("),
        ("CITATION.cff", "version: 0.0.9\n", "CITATION.cff has another version"),
    ):
        before = (repository / page).read_text()
        (repository / page).write_text(text)
        commit(repository)
        done = release(repository)
        assert done.returncode == 1 and message in done.stderr
        (repository / page).write_text(before)
        commit(repository)
    assert release(repository, "--frobnicate").returncode == 2
    assert not (repository / "dist").exists() and tags(repository) == ""
