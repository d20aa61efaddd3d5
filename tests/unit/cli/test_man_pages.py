"""Build the manual pages as the build of the wheel does. Check that they agree with the command
line parsers, and that they are valid roff.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tfdeploy.cli.command import make_parser
from tfdeploy.cli.verb_table import VERBS

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build all pages, and return {page: its path}. Like an isolated build, this uses no installed
    package.
    """
    folder = tmp_path_factory.mktemp("man")
    command = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "man_pages.py"), str(folder)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return {path.stem: path for path in folder.iterdir()}


def plain_text(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    for escaped, plain in ((r"\-", "-"), (r"\fB", ""), (r"\fR", ""), (r"\(aq", "'")):
        text = text.replace(escaped, plain)
    return text


def test_each_verb_has_page(pages: dict[str, Path]) -> None:
    assert set(pages) == {"tfdeploy", *(f"tfdeploy-{verb}" for verb in VERBS)}
    main_page = plain_text(pages["tfdeploy"])
    for verb, text in VERBS.items():
        assert f"\n{verb}\n{text}\n" in main_page.replace("\\(ga", "`")
        assert f"\n.BR tfdeploy-{verb} (1)" in main_page


@pytest.mark.parametrize("verb", VERBS)
def test_page_has_each_flag_of_verb(verb: str, pages: dict[str, Path]) -> None:
    text = plain_text(pages[f"tfdeploy-{verb}"])
    flags: list[str] = []
    parsers = [next(action for action in make_parser()._actions if action.choices).choices[verb]]
    while parsers:
        for action in parsers.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            elif action.help != argparse.SUPPRESS:
                flags.append(", ".join(action.option_strings) or str(action.metavar))
    headings = text.split("\n.TP\n")[1:]
    for flag in flags:
        words = flag.split(", ")
        assert any(all(word in heading.split("\n")[0] for word in words) for heading in headings), (
            flag
        )


@pytest.mark.needs("groff")
def test_roff_has_no_warnings(pages: dict[str, Path]) -> None:
    command = ["groff", "-man", "-ww", "-z", "-Tutf8", *map(str, pages.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stderr == ""


def test_wheel_has_pages_and_completion_scripts(tmp_path: Path, pages: dict[str, Path]) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("tfdeploy", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    program = "from setuptools import build_meta; build_meta.build_wheel('out')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    [wheel] = (tmp_path / "out").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    manual = {Path(name).stem for name in names if "/data/share/man/man1/" in name}
    assert manual == set(pages)
    scripts = {name for name in names if name.startswith("tfdeploy/cli/completion/")}
    assert {Path(name).name for name in scripts} >= {
        path.name for path in (ROOT / "tfdeploy/cli/completion").glob("*.*")
    }
