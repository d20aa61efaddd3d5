"""Test the requirements files that hosts get.

The content of all included files is copied into such a file, and the name of the file is the hash
of its content. A line that needs another file of this machine is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.files.wheels import make_wheel
from tfdeploy.errors import ConfigError, Refused
from tfdeploy.tree import read_recipe
from tfdeploy.tree.withheld_files import WithheldFile, WithheldFiles


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".txt").write_text(text)
    return folder / "requirements.txt"


def test_included_files_are_inserted_in_place(tmp_path: Path) -> None:
    text = (
        "-r more/base.txt\n--constraint=../pins.txt  # why\n-r https://example.org/x.txt\nnumpy "
        "\\\n  >=1\n# -r not.txt\n"
    )
    main = write(
        tmp_path / "job",
        requirements=text,
        more__base="-c pins.txt\n-rrequirements.txt\n",
        more__pins="",
    )
    write(tmp_path / "job" / "more", requirements="six\n")
    write(tmp_path, pins="numpy<3\n")
    recipe = read_recipe(main, None)
    assert recipe.main_file == "job/requirements.txt" and recipe.wheels is None
    assert sorted(recipe.files) == [
        "job/more/base.txt",
        "job/more/pins.txt",
        "job/more/requirements.txt",
        "job/requirements.txt",
        "pins.txt",
    ]
    assert recipe.files["job/requirements.txt"] == text


def test_name_depends_only_on_content(tmp_path: Path) -> None:
    def digest(folder: str, text: str, included: str = "six\n") -> str:
        main = write(tmp_path / folder, requirements=text, base=included)
        return read_recipe(
            main, tmp_path / folder / "wheels" if (tmp_path / folder / "wheels").exists() else None
        ).digest

    first = digest("a", "-r base.txt\nnumpy\n")
    assert digest("b", "-r base.txt\nnumpy\n") == first
    assert digest("b", "-r base.txt\nnumpy>1\n") != first
    assert digest("b", "-r base.txt\nnumpy\n", "seven\n") != first
    make_wheel(tmp_path / "a" / "wheels", "numpy", "1.0")
    with_wheels = digest("a", "-r base.txt\nnumpy\n")
    assert with_wheels not in ("", first)
    make_wheel(tmp_path / "a" / "wheels", "numpy", "1.0", text="CHANGED = 1")
    assert digest("a", "-r base.txt\nnumpy\n") != with_wheels


def test_hashes_of_wheels_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    wheel = make_wheel(tmp_path / "wheels", "numpy", "1.0")
    os.utime(wheel, (1000, 1000))
    main = write(tmp_path, requirements="numpy\n")
    first = read_recipe(main, tmp_path / "wheels", tmp_path / "cache")
    # From now on, reading a file would raise an error.
    monkeypatch.setattr("tfdeploy.agent.host.file_sum.hash_open_file", None)
    assert read_recipe(main, tmp_path / "wheels", tmp_path / "cache") == first


@pytest.mark.parametrize(
    "line",
    [
        "./libs/foo",
        "../foo",
        ".",
        ".[dev]",
        "libs/foo-1.0-py3-none-any.whl",
        "foo-1.0-py3-none-any.whl",
        "-e .",
        "-e libs/foo",
        "--editable=../foo",
        "foo @ ./libs/foo",
        "--find-links wheels",
        "-f ./wheels",
    ],
)
def test_line_that_needs_other_local_file_is_refused(tmp_path: Path, line: str) -> None:
    main = write(tmp_path, requirements=f"numpy\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_recipe(main, None)
    assert caught.value.where == f"{main}:2" and "wheels" in str(caught.value.next)


@pytest.mark.parametrize(
    "line",
    [
        "numpy[all]>=1.0,<2 ; python_version < '3.12'  # why",
        "foo @ https://example.org/foo-1.0-py3-none-any.whl",
        "https://example.org/foo-1.0.tar.gz",
        "-e git+https://example.org/foo.git@v1#egg=foo",
        "git+ssh://git@example.org/foo.git",
        "/shared/wheels/foo-1.0-py3-none-any.whl",
        "--index-url https://example.org/simple",
        "-f /shared/wheels",
        "--find-links=file:///shared/wheels",
        "--pre",
        "numpy==1.0 --hash=sha256:aa/bb",
    ],
)
def test_line_valid_on_hosts_is_accepted(tmp_path: Path, line: str) -> None:
    assert (
        line
        in read_recipe(write(tmp_path, requirements=f"{line}\n"), None).files["requirements.txt"]
    )


def test_missing_file_is_named(tmp_path: Path) -> None:
    main = write(tmp_path, requirements="\n-r nowhere.txt\n")
    with pytest.raises(ConfigError, match=r"no file .*nowhere\.txt") as caught:
        read_recipe(main, None)
    assert caught.value.where == f"{main}:2"
    with pytest.raises(ConfigError) as caught:
        read_recipe(tmp_path / "none.txt", None, setting="tfdeploy.yaml: setup")
    assert caught.value.where == "tfdeploy.yaml: setup.requirements"
    with pytest.raises(ConfigError, match="path of this machine"):
        read_recipe(write(tmp_path, requirements=f"-r {tmp_path}/base.txt\n"), None)
    main.write_text("numpy\n")
    with pytest.raises(ConfigError, match="no folder"):
        read_recipe(main, tmp_path / "wheels", setting="tfdeploy.yaml: setup")
    (tmp_path / "wheels").mkdir()
    with pytest.raises(Refused, match="no wheel"):
        read_recipe(main, tmp_path / "wheels")
    (tmp_path / "wheels" / "README").write_text("x")
    with pytest.raises(Refused, match="no wheel"):
        read_recipe(main, tmp_path / "wheels")
    main.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_recipe(main, None)


def test_key_among_wheels_and_secret_requirements_file_are_refused(
    tmp_path: Path,
) -> None:
    main = write(tmp_path / "job", requirements="-r more.txt\n", more="six\n")
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "six", "1.0")
    (wheels / "id").write_text("a key")
    for path, named in (
        (wheels / "id", "id is a private key"),
        (tmp_path / "job/more.txt", "more.txt is a private key"),
    ):
        with pytest.raises(ConfigError, match=named) as caught:
            read_recipe(
                main,
                wheels,
                withheld_files=WithheldFiles.from_paths({str(path): WithheldFile("a private key")}),
            )
        assert caught.value.exit_code == 2
