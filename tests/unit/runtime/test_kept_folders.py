"""Test a program that deletes its `keep` folder (a folder that outlives the run). In the program's
working folder, this is a symbolic link.

The program sees the folder disappear, as an ordinary folder would. But the files in the real `keep`
folder remain.
"""

from __future__ import annotations

import importlib.util

import pytest

BEGIN = """
import os, shutil, pathlib
os.makedirs("w/job/keep/logs"); open("w/job/keep/logs/model", "w").close()
os.mkdir("out"); os.symlink(os.path.abspath("w/job/keep/logs"), "out/logs")
logs = "out/logs"
"""
END = """
print(os.path.islink("out/logs"), sorted(os.listdir("out/logs")), os.listdir("w/job/keep/logs"))
"""
FRESH = "False ['new'] ['model']"
MESSAGE = (
    "tfdeploy: out/logs is a `keep` folder: the files of earlier runs in it are set aside, not "
    "deleted\n"
)
NEW = 'os.makedirs(logs); open(logs + "/new", "w").close()'
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


@pytest.mark.parametrize(
    "deletes",
    [
        "shutil.rmtree(logs)",
        "shutil.rmtree(logs + '/')",
        "shutil.rmtree(logs, ignore_errors=True)",
        "shutil.rmtree(path=pathlib.Path(logs))",
        "shutil.rmtree(os.fsencode(logs))",
        "shutil.rmtree('out')",
        "from shutil import rmtree; rmtree(logs)",
        "os.system('rm -rf out/logs')",
        "os.rename(logs, logs + '.old')",
        "pathlib.Path(logs).rename('old')",
        "shutil.move(logs, 'old')",
    ],
)
def test_program_gets_empty_folder_and_kept_files_remain(run_python, deletes):
    done = run_python(f"{BEGIN}{deletes}\n{NEW}\n{END}", TFDEPLOY_TASK_JOB="job")
    assert done.stdout.splitlines() == [FRESH], done.stderr
    assert done.stderr == (MESSAGE if "rmtree" in deletes else "")


def test_other_link_is_refused_and_folder_is_deleted(run_python):
    code = (
        BEGIN.replace("w/job/keep", "w/other/keep")
        + "os.makedirs('some/thing'); shutil.rmtree('some')\nprint(sorted(os.listdir('.')))\n"
    )
    done = run_python(code + "shutil.rmtree(logs)", TFDEPLOY_TASK_JOB="job")
    assert done.stdout.splitlines() == ["['out', 'w']"]
    assert "Cannot call rmtree on a symbolic link" in done.stderr
    assert run_python(
        "import shutil; shutil.rmtree('missing')", TFDEPLOY_TASK_JOB="job"
    ).stderr.endswith("'missing'\n")


@pytest.mark.tensorflow
@pytest.mark.skipif(not HAS_TENSORFLOW, reason="TensorFlow is not installed")
def test_folder_deleted_by_tensorflow(run_python):
    """Test a program that deletes the folder with a function of TensorFlow.

    Without tfdeploy's patch, TensorFlow would delete all files in the `keep` folder and then raise
    FailedPreconditionError.
    """
    cases = [
        "tf.compat.v1.gfile.DeleteRecursively(logs)",
        "tf.io.gfile.rmtree(logs + '/')",
        "tf.io.gfile.rmtree('out')",
    ]
    second_deletion = "shutil.rmtree('out'); shutil.rmtree('w')\n"
    code = "import tensorflow as tf\n" + "".join(
        f"{BEGIN}{case}\n"
        "tf.io.gfile.makedirs(logs); open(logs + '/new', 'w').close()\n"
        f"{END}{second_deletion}"
        for case in cases
    )
    done = run_python(code, TFDEPLOY_TASK_JOB="job")
    assert done.stdout.splitlines() == [FRESH] * len(cases), done.stderr
