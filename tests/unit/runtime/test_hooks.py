"""Test the import hook, which patches a module when a program imports it. A patch runs once, after
the import of its module. An error in the patch never makes the import fail.

The tests use a fake TensorFlow.
"""

from __future__ import annotations

import pytest

SAVER = "tensorflow/python/training/saver.py"
FAKE_SAVER = """
class Saver:
    def __init__(self, sharded=False):
        self._sharded, self.saver_def = sharded, None
        self._build()
    def _build(self):
        self.saver_def = "sharded" if self._sharded else "whole"
class ops:
    class device:
        def __init__(self, name): pass
        def __enter__(self): pass
        def __exit__(self, *args): pass
def _get_saver_or_default():
    return Saver(sharded=True)
"""
USE = (
    "import tensorflow.python.training.saver as s; print(s.Saver(sharded=True).saver_def, "
    "s._get_saver_or_default().saver_def)"
)


def test_patch_runs_after_import_of_module(run_python, fake_tensorflow):
    done = run_python(USE, paths=[fake_tensorflow({SAVER: FAKE_SAVER})])
    assert done.stdout == "whole whole\n"
    assert done.stderr.count("tfdeploy: Saver(sharded=True)") == 1


def test_only_saving_task_prints_message(run_python, fake_tensorflow):
    folder = fake_tensorflow({SAVER: FAKE_SAVER})
    assert run_python(USE, task="worker:1", paths=[folder]).stderr == ""
    code = (
        "import tensorflow.python.training.saver as s; print(s._get_saver_or_default().saver_def)"
    )
    done = run_python(code, paths=[folder])
    assert (done.stdout, done.stderr) == ("whole\n", "")


def test_nothing_changes_without_run_id(run_python, fake_tensorflow):
    done = run_python(USE, task=None, paths=[fake_tensorflow({SAVER: FAKE_SAVER})])
    assert (done.stdout, done.stderr) == ("sharded sharded\n", "")


def test_patched_module_looks_unchanged(run_python, fake_tensorflow):
    code = (
        "import inspect, tensorflow.python.training.saver as s\n"
        "print(type(s.__loader__).__name__, s.__spec__.loader is s.__loader__, 'class Saver' in "
        "inspect.getsource(s))"
    )
    assert (
        run_python(code, paths=[fake_tensorflow({SAVER: FAKE_SAVER})]).stdout
        == "SourceFileLoader True True\n"
    )


def test_other_finder_works_and_patch_runs_once(run_python, fake_tensorflow):
    code = (
        "import importlib.util, sys\n"
        "class Other:\n"
        "    busy = False\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if self.busy or not name.endswith('.saver'): return None\n"
        "        self.busy = True\n"
        "        try: return importlib.util.find_spec(name)\n"
        "        finally: self.busy = False\n"
        "sys.meta_path.insert(1, Other())\n"
        "import tensorflow.python.training.saver as s\n"
        "print(hasattr(s.Saver._build, '__wrapped__'), hasattr(s.Saver._build.__wrapped__, "
        "'__wrapped__'))"
    )
    assert run_python(code, paths=[fake_tensorflow({SAVER: FAKE_SAVER})]).stdout == "True False\n"


def test_reload_patches_module_again(run_python, fake_tensorflow):
    code = USE + "; import importlib; importlib.reload(s); print(s.Saver(sharded=True).saver_def)"
    assert (
        run_python(code, paths=[fake_tensorflow({SAVER: FAKE_SAVER})]).stdout
        == "whole whole\nwhole\n"
    )


@pytest.mark.parametrize(
    ("module", "patch"),
    [
        ("tensorflow.python.training.saver", "whole_checkpoints"),
        ("tensorflow.python.training.coordinator", "prompt_end"),
        ("tensorflow.python.training.session_manager", "prompt_start"),
        ("tensorflow.python.training.sync_replicas_optimizer", "synchronous"),
        ("tensorflow.python.client.session", "device_filters"),
    ],
)
def test_unknown_tensorflow_works_unpatched_with_message(
    run_python, fake_tensorflow, module, patch
):
    folder = fake_tensorflow({module.replace(".", "/") + ".py": "answer = 42"})
    done = run_python(f"import {module} as m; print(m.answer)", paths=[folder])
    assert done.stdout == "42\n"
    assert done.stderr.startswith(f"tfdeploy: {patch} is not in effect here: AttributeError")
    assert done.stderr.count("\n") == 1


def test_failing_import_fails_as_without_hook(run_python, fake_tensorflow):
    folder = fake_tensorflow({SAVER: "1 / 0"})
    code = (
        "try:\n    import tensorflow.python.training.saver\nexcept ZeroDivisionError:\n    "
        "print('its own error')"
    )
    assert run_python(code, paths=[folder]).stdout == "its own error\n"
    (folder / SAVER).unlink()
    done = run_python("import tensorflow.python.training.saver", paths=[folder])
    assert done.stderr.endswith(
        "ModuleNotFoundError: No module named 'tensorflow.python.training.saver'\n"
    )
