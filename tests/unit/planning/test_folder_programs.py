"""Test which program of a folder, and which mode, `tfdeploy init` proposes for a launch."""

from __future__ import annotations

import pytest

from tfdeploy.planning.folder_programs import FolderProgram, find_programs

TF = "import tensorflow as tf\n"
PYTHON2 = (
    TF
    + """
tf.app.flags.DEFINE_string("ps_hosts", "", "")
def main(_):
    server = tf.train.Server(None)
    print "one", \\
        "two"
    print "three"
if __name__ == "__main__":
    tf.app.run(main)
"""
)
TORCH = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
CHOICE = """
def strategy(name):
    if name == "mirrored":
        return tf.distribute.MirroredStrategy()
    return tf.distribute.MultiWorkerMirroredStrategy()
strategy(open("name").read())
"""


def programs_in(**texts: str) -> list[FolderProgram]:
    return programs_among({f"{name}.py": text for name, text in texts.items()})


def programs_among(sources: dict[str, str], *folders: str) -> list[FolderProgram]:
    return find_programs(sources, lambda path: False, lambda path: path in folders)


def test_python_2_program_is_read_without_old_lines() -> None:
    (program,) = programs_in(example=PYTHON2)
    assert (program.path, program.mode) == ("example.py", "async")
    assert program.reason.startswith("example.py:5 ")


def test_estimator_gets_roles_of_coordinator() -> None:
    (program,) = programs_in(task=TF + "tf.estimator.train_and_evaluate(e, t, v)\n")
    assert program.mode == "coordinator"


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        ({"bandwidth": TORCH, "dist_train": TORCH}, "dist_train.py"),
        (
            {"make_report": "print(1)\nprint(2)\n", "train_churn": TF + "print(1)\n"},
            "train_churn.py",
        ),
        ({"a_report": "print(1)\nprint(2)\n", "model": TF + "print(1)\n"}, "model.py"),
    ],
)
def test_training_program_comes_first(texts: dict[str, str], first: str) -> None:
    assert programs_in(**texts)[0].path == first


def test_choice_between_strategies_shows_no_mode() -> None:
    (program,) = programs_in(train=TF + CHOICE)
    assert program.mode is None
    assert "MirroredStrategy, train.py" in program.reason


def test_a_folder_that_is_the_default_of_a_flag_is_data_or_gets_checkpoints() -> None:
    flags = "import argparse\np = argparse.ArgumentParser()\n" + "".join(
        f"p.add_argument('--{name}', default='{default}')\n"
        for name, default in (("samples", "samples"), ("save", "save/ae.ckpt"), ("mode", "fast"))
    )
    (program,) = programs_among({"train.py": flags}, "samples", "save")
    assert (program.data, program.keep) == ((("--samples", "samples"),), ("save",))


def test_a_program_that_imports_its_own_package_is_started_as_a_module() -> None:
    text = "from trainer import model\nmodel.train()\n"
    sources = {"trainer/task.py": text, "trainer/model.py": "def train():\n  pass\n"}
    assert programs_among(sources)[0].command == ("python", "-m", "trainer.task")
    assert programs_among({"tools/train.py": text})[0].command == ("python", "tools/train.py")
