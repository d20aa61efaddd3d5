"""Test the function that tfdeploy supplies to programs for reading MNIST.

The function looks for the four files of MNIST in the folder that the program names, and then in the
data sets of the job. It prints which folder it uses.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from support.files import idx

pytest.importorskip("numpy")


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Return a function that reads MNIST from a folder as a task does, and returns the number of
    test images.
    """
    dtypes = {"float32": "float32", "uint8": "uint8", "get_seed": lambda seed: (seed, seed)}
    stand_in = types.SimpleNamespace(
        **dtypes, as_dtype=lambda name: types.SimpleNamespace(base_dtype=name)
    )
    for name in ("tensorflow", "tensorflow.compat"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "tensorflow.compat.v1", stand_in)  # type: ignore[arg-type]
    monkeypatch.setattr(sys.modules["tensorflow.compat"], "v1", stand_in, raising=False)
    monkeypatch.setattr(
        sys.modules["tensorflow"], "compat", sys.modules["tensorflow.compat"], raising=False
    )
    name = "tfdeploy.runtime.supplied.examples.tutorials.mnist.input_data"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    run = tmp_path / "job" / "runs" / "r"
    (run / "hosts" / "n2").mkdir(parents=True)
    monkeypatch.setenv("TFDEPLOY_TASK_FOLDER", str(run / "hosts" / "n2"))
    monkeypatch.chdir(tmp_path)

    def read(folder: str) -> int:
        places = {
            label_file.parent.name: f"data/{label_file.parent.name}"
            for label_file in tmp_path.glob("job/data/*/t10k-labels*")
        }
        (run / "plan.json").write_text(
            json.dumps({"data": {**places, "words": "data/words/list.txt"}})
        )
        return int(module.read_data_sets(folder, validation_size=0).test.num_examples)

    return read


def test_folder_of_program_takes_precedence(read: Callable[[str], int], tmp_path: Path) -> None:
    idx.write(tmp_path / "MNIST_data", train=20, test=10)
    idx.write(tmp_path / "job" / "data" / "mnist", train=20, test=5)
    assert read("MNIST_data") == 10


@pytest.mark.parametrize("folder", ["MNIST_data", "/nowhere/tmp/data"])
def test_data_set_is_found_for_any_folder_in_program(
    read: Callable[[str], int], tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    idx.write(tmp_path / "job" / "data" / "mnist", train=20, test=5)
    assert read(folder) == 5
    assert (
        capsys.readouterr().err
        == f"tfdeploy: {folder} has no MNIST files, so they are read from the data set in "
        f"{tmp_path}/job/data/mnist\n"
    )


@pytest.mark.parametrize(
    ("folder", "sets", "message"),
    [
        ("./MNIST_data/", (), "or put them into MNIST_data of the code"),
        ("/nowhere/tmp/data", (), "`data: {mnist: FOLDER}`"),
        ("MNIST_data", ("digits", "fashion"), "`data: {mnist: FOLDER}`"),
    ],
)
def test_error_without_unique_data_set_says_where_to_put_files(
    read: Callable[[str], int], tmp_path: Path, folder: str, sets: tuple[str, ...], message: str
) -> None:
    for name in sets:
        idx.write(tmp_path / "job" / "data" / name, train=20, test=5)
    with pytest.raises(FileNotFoundError) as error:
        read(folder)
    assert message in str(error.value)
