"""Put the manual pages into the wheel. pyproject.toml has all other settings."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))

from man_pages import write_pages

setup(data_files=[("share/man/man1", [str(path) for path in write_pages(Path("build/man"))])])
