"""Find wheels that do not fit a Python, by the tags in their names (PEP 425)."""

from __future__ import annotations

import os
import re

from tfdeploy.tree.recipe import EnvironmentRecipe, logical_lines


def find_unfit_wheels(recipe: EnvironmentRecipe, python_version: str) -> list[str]:
    """Return all wheels of those required packages that have no wheel for this Python on Linux.

    A source archive always fits. A requirement with a marker, such as `; python_version < "3.9"`,
    may not be needed, so its wheels are not returned.
    """
    python = rf"py3\d*|pp\d+|cp3{python_version.split('.')[1]}|cp3\d+(?=\S*-abi3-)"
    fitting = re.compile(rf"[-.]({python})[-.].*(any|linux)|(?<!\.whl)\Z")
    rows = recipe.wheels.rows if recipe.wheels else ()
    names = [os.path.basename(os.fsdecode(row.path)) for row in rows]
    unfit: list[str] = []
    for text in recipe.files.values():
        for _, line in logical_lines(text):
            package = _normalise(re.split(r"[^\w.-]", line)[0] + "-")
            files = [name for name in names if _normalise(name).startswith(package)]
            if ";" not in line and not any(map(fitting.search, files)):
                unfit += files
    return unfit


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
