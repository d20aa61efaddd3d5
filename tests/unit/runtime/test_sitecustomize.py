"""Test that tfdeploy's sitecustomize changes only tasks, never makes a program fail, and then runs
the sitecustomize of the host.
"""

from __future__ import annotations

import sys

import pytest

HOOKED = "import sys; print(any('_tfdeploy' in type(f).__module__ for f in sys.meta_path))"


def test_without_a_run_id_nothing_of_ours_is_loaded(run_python):
    done = run_python(
        "import sys; print([n for n in sys.modules if '_tfdeploy_runtime' in n])", task=None
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_in_a_task_the_finder_is_there_and_nothing_is_said(run_python):
    done = run_python(HOOKED)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_it_imports_nothing_that_costs(run_python):
    code = "import sys; print(*sys.modules)"
    with_task = set(run_python(code).stdout.split())
    without = set(run_python(code, task=None).stdout.split())
    assert {n for n in with_task - without if not n.startswith("_tfdeploy_runtime")} == {
        "__future__"
    } - without


def test_the_programs_own_path_and_names_are_untouched(run_python, tmp_path):
    (tmp_path / "tfdeploy.py").write_text("print('the user has a module of that name')")
    assert run_python("import tfdeploy").stdout == "the user has a module of that name\n"


@pytest.mark.parametrize("task", [None, "worker:0"])
def test_the_hosts_own_sitecustomize_runs_and_is_the_one_that_is_seen(run_python, tmp_path, task):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "sitecustomize.py").write_text(
        "import sys; sys.path.append('/added'); answer = 42"
    )
    code = "import sys, sitecustomize; print(sitecustomize.answer, '/added' in sys.path)"
    done = run_python(code, task=task, paths=[tmp_path / "host"])
    assert (done.stdout, done.stderr) == ("42 True\n", "")


def test_an_error_in_the_hosts_own_sitecustomize_is_reported_by_python_as_ever(
    run_python, tmp_path
):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "sitecustomize.py").write_text("import no_such_module_at_all")
    done = run_python(HOOKED, paths=[tmp_path / "host"])
    assert done.stdout == "True\n"
    assert "no_such_module_at_all" in done.stderr


def test_a_child_in_a_shell_and_a_spawned_process_have_it_too(run_python, tmp_path):
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


def test_an_error_of_ours_costs_one_line_and_never_the_program(run_python, broken_runtime):
    done = run_python("print('trained')", PYTHONPATH=str(broken_runtime / "site"))
    assert done.stdout == "trained\n"
    assert done.stderr.splitlines() == [
        "tfdeploy: the runtime is not in effect: ValueError: broken for the test"
    ]


# The modules that the runtime imports at each start of Python take 0.9 ms on an idle machine.
def test_a_start_of_python_brings_little_in(run_python):
    count = "import sys; print(len(sys.modules))"
    more = int(run_python(count, task="worker:0").stdout) - int(run_python(count, task=None).stdout)
    assert more <= 20
