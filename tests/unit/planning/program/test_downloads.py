"""Test that a plan has a note about data that the program expects, if neither the code folder nor
the job file provides this data.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.model.job import DataSource, Job
from tfdeploy.planning.program import downloads
from tfdeploy.planning.source import source

JOB = Job(name="digits", mode="async", command=("python", "train.py"), code="/code")
MNIST = "from tensorflow.examples.tutorials.mnist import input_data\n"


def notes(text, job=JOB, files=("train.py",)):
    return downloads.notes(job, source.read_program(job.command, {"train.py": text}), files)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            MNIST + "m = input_data.read_data_sets('MNIST_data', one_hot=True)",
            "train.py:2 reads MNIST from MNIST_data, and",
        ),
        (
            MNIST + "m = input_data.read_data_sets('MNIST_data/')",
            "put the four files of MNIST into MNIST_data/ of the code, or",
        ),
        (
            MNIST + "m = input_data.read_data_sets(train_dir='/tmp/data')",
            "add `data: {mnist: FOLDER}`, unless each",
        ),
        (
            MNIST + "D = './mnist'\nm = input_data.read_data_sets(D)",
            "train.py:3 reads MNIST from ./mnist",
        ),
        (
            MNIST + "tf.app.flags.DEFINE_string('data_dir', '/tmp/mnist-data', "
            "'')\ninput_data.read_data_sets(FLAGS.data_dir)",
            "reads MNIST from /tmp/mnist-data",
        ),
        (
            "from tensorflow.contrib.learn.python.learn.datasets.mnist import "
            "read_data_sets\nread_data_sets('MNIST_data')",
            "train.py:2 reads MNIST from MNIST_data",
        ),
        (
            "import tensorflow as tf\ntf.contrib.learn.datasets.mnist.read_data_sets('M')",
            "train.py:2 reads MNIST from M, and",
        ),
        (
            "import tensorflow as tf\n(x, y), _ = tf.keras.datasets.mnist.load_data()",
            "loads keras.datasets.mnist: a host downloads",
        ),
        (
            "from tensorflow.keras.datasets import cifar10\ncifar10.load_data()",
            "train.py:2 loads keras.datasets.cifar10",
        ),
        (
            "from tensorflow import keras\nkeras.datasets.imdb.load_data()",
            "train.py:2 loads keras.datasets.imdb",
        ),
    ],
)
def test_data_that_nothing_provides_gives_note(text, expected):
    (note,) = notes(text)
    assert expected in note


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (
            MNIST + "m = input_data.read_data_sets('MNIST_data')",
            ("train.py", "MNIST_data/t10k-labels-idx1-ubyte.gz"),
        ),
        (MNIST + "m = input_data.read_data_sets('MNIST_data')", ()),
        (MNIST + "m = input_data.read_data_sets(sys.argv[1])", ("train.py",)),
        (MNIST + "m = input_data.read_data_sets('M', fake_data=True)", ("train.py",)),
        ("import input_data\nm = input_data.read_data_sets('MNIST_data')", ("train.py",)),
        (
            "import tensorflow as tf\ntry:\n    tf.keras.datasets.mnist.load_data()\nexcept "
            "Exception:\n    pass",
            ("train.py",),
        ),
    ],
)
def test_provided_or_unknown_data_gives_no_note(text, files):
    assert notes(text, files=files) == ()


def test_folder_with_other_files_gives_note():
    text = MNIST + "m = input_data.read_data_sets('MNIST_data')"
    (note,) = notes(text, files=("train.py", "MNIST_data/mnist.npz"))
    assert "put the four files of MNIST into MNIST_data" in note


def test_data_set_of_job_gives_no_note():
    job = replace(JOB, data={"mnist": DataSource(path="/elsewhere/mnist")})
    assert notes(MNIST + "m = input_data.read_data_sets('MNIST_data')", job) == ()


def test_data_folder_is_searched_where_command_starts():
    text = MNIST + "m = input_data.read_data_sets('../MNIST_data')"
    job = replace(JOB, cwd="src")
    program = source.read_program(job.command, {"src/train.py": text}, job.cwd)
    assert downloads.notes(job, program, ["MNIST_data/train-images-idx3-ubyte.gz"]) == ()
    assert (
        "src/train.py:2 reads MNIST from src/../MNIST_data"
        in downloads.notes(job, program, ["src/train.py"])[0]
    )


@pytest.mark.parametrize(
    ("text", "job", "noted"),
    [
        ("open('../shared/numbers.csv')", JOB, "train.py:1 names ../shared/numbers.csv, which is"),
        (
            "D = '../in'\nnp.load(D)",
            JOB,
            "write `data: {NAME: ../in}`, and give the program {data.NAME}",
        ),
        ("p.add_argument('--d', default='../in')", JOB, "train.py:1 names ../in"),
        (MNIST + "m = input_data.read_data_sets('../data')", JOB, "train.py:2 names ../data"),
        ("pass", replace(JOB, command=("python", "train.py", "--data=../in")), "names ../in, "),
        ("open('../in')", replace(JOB, folder="/code/jobs"), "{NAME: ../../in}"),
        ("open('../in')", replace(JOB, cwd="src"), None),
        ("open(os.path.join(here, '../in'))", JOB, None),
        ("open(here / '../in')", JOB, None),
        ("print('../ is the folder above')", JOB, None),
    ],
)
def test_path_outside_code_is_noted(text: str, job: Job, noted: str | None) -> None:
    found = notes(text, replace(job, data={"a": DataSource(path="/a")}))
    assert len(found) == (noted is not None) and (noted or "") in "".join(found)
