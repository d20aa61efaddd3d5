"""Test which wheels are said not to fit the Python of a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.tree import read_recipe
from tfdeploy.tree.wheel_tags import find_unfit_wheels


@pytest.mark.parametrize(
    ("requirement", "files", "unfit"),
    [
        ("line-fit==1.2", ["line_fit-1.2-cp39-cp39-linux_x86_64.whl"], True),
        ("line_fit", ["Line_Fit-1.2-cp39-cp39-win_amd64.whl"], True),
        ("linefit", ["linefit-1.2-py3-none-win_amd64.whl"], True),
        ("linefit", ["linefit-1.2-cp39-abi3-manylinux_2_17_x86_64.whl"], False),
        ("linefit", ["linefit-1.2-cp311-cp311-linux_x86_64.whl"], False),
        ("linefit", ["linefit-1.2-1-cp39.cp311-none-any.whl"], False),
        ("linefit", ["linefit-1.2-py2.py3-none-any.whl"], False),
        ("linefit", ["linefit-1.2-cp39-cp39-linux_x86_64.whl", "linefit-1.2.tar.gz"], False),
        ("linefit; python_version < '3.10'", ["linefit-1.2-cp39-cp39-linux_x86_64.whl"], False),
        ("other", ["linefit-1.2-cp39-cp39-linux_x86_64.whl"], False),
    ],
)
def test_wheels_that_fit_no_python(
    tmp_path: Path, requirement: str, files: list[str], unfit: bool
) -> None:
    main = tmp_path / "requirements.txt"
    main.write_text(f"{requirement}\n")
    (tmp_path / "wheels").mkdir()
    for name in files:
        (tmp_path / "wheels" / name).touch()
    recipe = read_recipe(main, tmp_path / "wheels")
    assert find_unfit_wheels(recipe, "3.11.7") == (files if unfit else [])
    assert find_unfit_wheels(read_recipe(main, None), "3.11.7") == []
