"""Fixtures of the tests for code folders."""

import pytest

from support.files.code_tree import git


@pytest.fixture(params=["checkout", "plain folder"])
def root(request, tmp_path):
    """Return a code folder. Each test that uses it runs twice: with a git checkout and with a plain
    folder.
    """
    folder = tmp_path / "code"
    folder.mkdir()
    if request.param == "checkout":
        git(folder, "init", "-q")
    return folder


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder
