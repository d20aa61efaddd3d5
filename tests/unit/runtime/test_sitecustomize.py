"""Test tfdeploy's sitecustomize module, which Python imports when it starts. It changes only tasks
of tfdeploy and never makes a program fail. At its end it runs the host's own sitecustomize.
"""

from __future__ import annotations

import sys

import pytest

HOOKED = "import sys; print(any('_tfdeploy' in type(f).__module__ for f in sys.meta_path))"


def test_runtime_is_not_loaded_without_run_id(run_python):
    done = run_python(
        "import sys; print([n for n in sys.modules if '_tfdeploy_runtime' in n])", task=None
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_task_has_finder_and_prints_nothing(run_python):
    done = run_python(HOOKED)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_runtime_imports_no_further_modules(run_python):
    code = "import sys; print(*sys.modules)"
    with_task = set(run_python(code).stdout.split())
    without = set(run_python(code, task=None).stdout.split())
    assert {n for n in with_task - without if not n.startswith("_tfdeploy_runtime")} == {
        "__future__"
    } - without


def test_path_and_names_of_program_are_unchanged(run_python, tmp_path):
    (tmp_path / "tfdeploy.py").write_text("print('the user has a module of that name')")
    assert run_python("import tfdeploy").stdout == "the user has a module of that name\n"


@pytest.mark.parametrize("task", [None, "worker:0"])
def test_sitecustomize_of_host_runs_and_is_visible(run_python, tmp_path, task):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "sitecustomize.py").write_text(
        "import sys; sys.path.append('/added'); answer = 42"
    )
    code = "import sys, sitecustomize; print(sitecustomize.answer, '/added' in sys.path)"
    done = run_python(code, task=task, paths=[tmp_path / "host"])
    assert (done.stdout, done.stderr) == ("42 True\n", "")


def test_error_in_sitecustomize_of_host_is_reported(run_python, tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "sitecustomize.py").write_text("import no_such_module_at_all")
    done = run_python(HOOKED, paths=[tmp_path / "host"])
    assert done.stdout == "True\n"
    assert "no_such_module_at_all" in done.stderr


def test_child_in_shell_and_spawned_process_have_runtime(run_python, tmp_path):
    (tmp_path / "child.py").write_text(HOOKED)
    (tmp_path / "train.sh").write_text(f"exec {sys.executable} child.py\n")
    code = (
        "import multiprocessing, subprocess, child\n"
        "if __name__ == '__main__':\n"
        "    subprocess.run(['sh', 'train.sh'], check=True)\n"
        "    p = multiprocessing.get_context('spawn').Process(target=exec, "
        "args=(open('child.py').read(),))\n"
        "    p.start(); p.join()\n"
    )
    assert run_python(code).stdout == "True\n" * 3


def test_error_in_runtime_prints_one_line_and_program_continues(run_python, broken_runtime):
    done = run_python("print('trained')", PYTHONPATH=str(broken_runtime / "site"))
    assert done.stdout == "trained\n"
    assert done.stderr.splitlines() == [
        "tfdeploy: tfdeploy's runtime is not in effect: ValueError: broken for the test"
    ]


# Because of tfdeploy's runtime, each start of Python in a task imports a few more modules. On an
# idle machine, this takes 0.9 ms.
def test_start_of_task_loads_few_more_modules(run_python):
    count = "import sys; print(len(sys.modules))"
    further_modules = int(run_python(count, task="worker:0").stdout) - int(
        run_python(count, task=None).stdout
    )
    assert further_modules <= 20
