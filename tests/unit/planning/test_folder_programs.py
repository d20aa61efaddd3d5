"""Test which program of a folder, and which mode, `tfdeploy init` proposes for a launch."""

from __future__ import annotations

import pytest

from tfdeploy.planning.folder_programs import FolderProgram, find_programs
from tfdeploy.planning.source import source

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


def programs_among(
    sources: dict[str, str],
    *folders: str,
    documents: str = "",
    empty: tuple[str, ...] = (),
    **scripts: str,
) -> list[FolderProgram]:
    contents = {**dict.fromkeys(folders, True), **dict.fromkeys(empty, False)}
    return find_programs(sources, {"README.md": documents, **scripts}, contents.get)


def test_python_2_program_is_read_without_old_lines() -> None:
    (program,) = programs_in(example=PYTHON2)
    assert (program.path, program.mode) == ("example.py", "async")
    assert program.reason.startswith("example.py:5 ")


def test_tabs_mixed_with_spaces_are_read_as_python_2_reads_them() -> None:
    (program,) = programs_in(
        example=PYTHON2.replace("    print", "\tprint").replace("    s", " " * 8 + "s")
    )
    assert (program.mode, program.reason[:13]) == ("async", "example.py:5 ")


def test_estimator_runs_in_every_task() -> None:
    (program,) = programs_in(task=TF + "tf.estimator.train_and_evaluate(e, t, v)\n")
    assert program.mode == "async"


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
    assert (program.data, program.keep) == ((("samples", "--samples"),), ("save",))


def test_an_empty_folder_that_the_program_names_gets_checkpoints() -> None:
    flags = "import argparse\np = argparse.ArgumentParser()\n" + "".join(
        f"p.add_argument('--{name}', default='{name}')\n" for name in ("snapshots", "images")
    )
    text = f"{flags}p.parse_args()\ndownload('./data')\n"
    (program,) = programs_among({"train.py": text}, empty=("snapshots", "images", "data"))
    assert (program.data, program.keep) == ((("images", "--images"),), ("snapshots",))


def test_a_folder_in_the_text_of_the_program_is_data_or_gets_checkpoints() -> None:
    text = "from config import LOG_DIR\nprint(open('words/a.txt'), open('conf/a.yaml'))\n"
    config = "LOG_DIR = 'runs/a'\ntrain_dir = 'cats/train'\n"
    sources = {"train.py": text, "config.py": config}
    program = programs_among(sources, "words", "conf", "cats")[0]
    assert (program.data, program.keep) == ((("cats", ""), ("words", "")), ("runs",))


DOCUMENT = """
Run `python train.py --job_name=worker --out=runs/a --size 3 \\
    --corpus texts --master=n1:2222`, then `python test.py --mode fast`.
python train.py --out=other --name=YOUR_NAME --cache /var/cache --images path/to/images
"""


def test_flags_without_default_get_values_from_an_example_of_the_command() -> None:
    names = ["job_name", "out", "size", "corpus", "master", "mode", "name", "cache", "images"]
    text = (
        f"{TF}server = tf.train.Server(None)\n"
        + "".join(f"tf.app.flags.DEFINE_string('{name}', None, '')\n" for name in names)
        + "tf.app.flags.DEFINE_string('ps_hosts', '', '')\n"
    )
    (program,) = programs_among({"train.py": text}, "texts", documents=DOCUMENT)
    assert program.arguments == ("--out=runs/a",)
    assert (program.data, program.keep) == ((("texts", "--corpus"),), ("runs",))


def test_only_required_flags_get_values_from_later_examples() -> None:
    text = (
        "import lightning\n"
        "p.add_argument('--config', required=True)\np.add_argument('--test')\n"
        "p.add_argument('--images', required=True)\n"
    )
    document = "`train.py --config a.yaml`, or\n`train.py --test last.ckpt --images all/x`\n"
    (program,) = programs_among({"train.py": text}, documents=document)
    assert program.arguments == ("--config=a.yaml", "--images=all/x")


def test_a_program_that_imports_its_own_package_is_started_as_a_module() -> None:
    text = "from trainer import model\nmodel.train()\n"
    sources = {"trainer/task.py": text, "trainer/model.py": "def train():\n  pass\n"}
    assert programs_among(sources)[0].command == ("python", "-m", "trainer.task")
    assert programs_among({"tools/train.py": text})[0].command == ("python", "tools/train.py")
    text = "from src.net import fit\nfit()\n"
    (program,) = programs_among({"src/ocr/cli.py": text})
    assert (program.command, program.env) == (("python", "-m", "src.ocr.cli"), {})


@pytest.mark.parametrize("start", ["from .net import fit", "import ocr", "from ocr.net import fit"])
def test_a_package_in_src_is_started_as_a_module_and_put_on_the_path(start: str) -> None:
    sources = {
        "src/ocr/train.py": f"{start}\nfit()\n",
        "src/ocr/net.py": "import tensorflow as tf\nFLAG = 'job_name'\ndef fit():\n  pass\n",
    }
    program = programs_among(sources)[0]
    assert (program.command, program.env) == (("python", "-m", "ocr.train"), {"PYTHONPATH": "src"})
    read = source.read_program(program.command, sources)
    assert read.path == "src/ocr/train.py" and read.import_folder == "src"


SETTINGS = """
io:
  input: "texts"   # one file for each author
  files: scans/*.png
  model_dir: runs/a
  save: yes
"""


def test_folders_of_settings_are_data_or_get_checkpoints() -> None:
    text = "import yaml\nprint(yaml.safe_load(open('conf.yaml')))\noutput = a / b\nout = c/d\n"
    sources = {"train.py": text}
    (program,) = programs_among(sources, "texts", "scans", documents=SETTINGS)
    assert (program.data, program.keep) == ((("texts", ""), ("scans", "")), ("runs",))


@pytest.mark.parametrize(
    "text",
    [
        "p.add_argument('--out', type=Path, default=Path('runs'))",
        "MODEL_DIR = os.environ.get('MODEL_DIR', './runs')",
        "keep = 'runs/a'\nm = tf.train.CheckpointManager(c, os.path.join(keep, 'b'))",
        "p.add_argument('--model_path', default='runs/m.h5')\n"
        "tf.train.Supervisor(logdir=a.model_path)",
        "saver.save(session, 'runs/model.ckpt')",
        "fit(x, output_dir='runs')",
        "tf.train.CheckpointManager(c, os.environ.get('CKPT', './runs'), max_to_keep=2)",
        "tf.train.CheckpointManager(c, os.path.join('runs', name), max_to_keep=2)",
    ],
)
def test_folder_for_checkpoints_is_found(text: str) -> None:
    assert programs_in(train=f"import tensorflow as tf\nprint(1)\n{text}\n")[0].keep == ("runs",)


@pytest.mark.parametrize(
    "text", ["torch.save(net, 'net.pt')", "p.add_argument('--out', default='net.pt')", "save = x/y"]
)
def test_file_is_no_folder_for_checkpoints(text: str) -> None:
    assert not programs_in(train=f"import torch\nprint(1)\n{text}\n")[0].keep


CLICK = """
import click
@click.group()
def cli(): pass
@cli.command()
@click.option('--words',
              help='folder')
def train_net(words): pass
@cli.command()
def evaluate(): pass
cli()
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CLICK, ("train-net",)),
        (CLICK.replace("train_net", "learn"), ()),
        (CLICK.replace("@cli.", "@click."), ()),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net)\n", ("fit",)),
        ("import argparse\nparsers.add_parser('export')\nparsers.add_parser(\n 'fit')\n", ("fit",)),
    ],
)
def test_subcommand_for_the_training_is_in_the_command(text: str, words: tuple[str, ...]) -> None:
    assert programs_in(ocr=text)[0].command == ("python", "ocr.py", *words)


def test_flags_that_a_library_makes_of_classes_are_taken_from_an_example() -> None:
    text = "import transformers\ntransformers.HfArgumentParser(Arguments).parse()\n"
    command = "deepspeed tune.py --data_path texts/a.json --epochs 3 --output_dir runs/b\n"
    (program,) = programs_among({"tune.py": text}, "texts", documents=command)
    assert program.arguments == ("--data_path=texts/a.json", "--output_dir=runs/b")
    assert (program.data, program.keep) == ((("texts", ""),), ("runs",))


def test_flags_that_pass_the_rank_are_in_the_command() -> None:
    text = (
        "import argparse, jax\np = argparse.ArgumentParser()\n"
        "p.add_argument('--process_id', type=int)\np.add_argument('--out')\na = p.parse_args()\n"
        "jax.distributed.initialize('n1:1234', num_processes=2, process_id=a.process_id)\n"
    )
    (program,) = programs_among(
        {"train.py": text}, documents="python train.py --process_id 0 --out=b\n"
    )
    assert program.mode == "plain"
    assert program.arguments == ("--out=b", "--process_id={rank}")


def test_program_that_a_document_names_comes_first() -> None:
    texts = {"train.py": TORCH, "fit_all.py": TORCH}
    assert programs_among(texts)[0].path == "train.py"
    assert programs_among(texts, documents="python3 -u fit_all.py --lr 1")[0].path == "fit_all.py"


SCRIPT = 'set -eu\ncd "$(dirname "${BASH_SOURCE[0]}")"\nexec python src/train.py --out=a "$@"\n'


@pytest.mark.parametrize(
    ("documents", "script", "command"),
    [
        ("./run.sh --job_name worker", SCRIPT, ("bash", "run.sh")),
        ("see train.md", SCRIPT, ("python", "src/train.py")),
        ("bash run.sh", SCRIPT.replace('"$@"', "--lr=1"), ("python", "src/train.py")),
    ],
)
def test_script_that_a_document_names_starts_the_program(
    documents: str, script: str, command: tuple[str, ...]
) -> None:
    sources = {"src/train.py": TORCH}
    (program,) = programs_among(sources, documents=documents, **{"run.sh": script})
    assert (program.path, program.command, program.mode) == ("src/train.py", command, "plain")
