"""Find wheels that do not fit a Python, by the tags in their names (PEP 425)."""

from __future__ import annotations

import os
import re

from tfdeploy.tree.recipe import EnvironmentRecipe, logical_lines

_WHEEL = re.compile(r"([\w.]+)-[^-]+(?:-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl")
_REQUIRED = re.compile(r"[A-Za-z0-9][\w.-]*")
_PLATFORMS = re.compile(r"any|linux|manylinux|musllinux")


def find_unfit_wheels(recipe: EnvironmentRecipe, python_version: str) -> list[str]:
    """Return the wheels of each required package of which no file fits this Python.

    A requirement with a marker (`; python_version < "3.9"`) may not be needed, so it is left out.
    """
    rows = recipe.wheels.rows if recipe.wheels else ()
    names = [os.path.basename(os.fsdecode(row.path)) for row in rows]
    unfit: list[str] = []
    for line in (line for text in recipe.files.values() for _, line in logical_lines(text)):
        required = None if ";" in line else _REQUIRED.match(line)
        package = _normalise(f"{required[0]}-") if required else "\n"
        files = [name for name in names if _normalise(name).startswith(package)]
        if not any(_fits(name, python_version) for name in files):
            unfit += files
    return unfit


def _fits(name: str, python_version: str) -> bool:
    """Return whether the file is a source archive, or a wheel for this Python on Linux."""
    wheel = _WHEEL.fullmatch(name)
    if wheel is None:
        return True
    _, pythons, abis, platforms = wheel.groups()
    minor = int(python_version.split(".")[1])
    return _PLATFORMS.match(platforms) is not None and any(
        tag in (f"cp3{minor}", "py3")
        or not tag.startswith(("cp", "py"))
        or ((tag.startswith("py3") or "abi3" in abis) and int(tag[3:] or 0) <= minor)
        for tag in pythons.split(".")
    )


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
