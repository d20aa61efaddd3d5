"""Test how tfdeploy's runtime supplies names that NumPy has dropped, and which explanation it adds
to an error of NumPy 2.4.

The tests use the installed NumPy.
"""

from __future__ import annotations

import pytest

from tfdeploy.runtime.old_names import numpy_names

numpy = pytest.importorskip("numpy", "2.4")
OLD = """
import numpy as np
print(np.float(3), np.zeros(2, dtype=np.int).dtype.kind, np.product([2, 3]), np.alltrue([1, 0]))
print(
    np.in1d([[1, 2]], [2]).tolist(), np.asscalar(np.array([4])), np.asfarray([1]).dtype,
    np.msort([[2], [1]]).tolist(),
)
print(np.isinf(np.PINF), np.NINF, np.mat([1]).shape)
print(
    np.float is float, np.unicode_ is np.str_, np.rank(np.zeros((1, 2))), np.bool is np.bool_,
    np.float32 is not float,
)
"""


def test_program_for_older_numpy_finds_its_names(run_python):
    done = run_python(OLD)
    assert done.stdout.splitlines() == [
        "3.0 i 6 False",
        "[False, True] 4 float64 [[1], [2]]",
        "True -inf (1, 1)",
        "True True 2 True True",
    ], done.stderr
    assert done.stderr == ""


def test_nothing_is_added_outside_task(run_python):
    done = run_python(
        "import numpy as np; print(hasattr(np, 'float'), hasattr(np, 'product'))", task=None
    )
    assert done.stdout == "False False\n"


def test_every_name_of_table_is_added():
    class Copy:
        pass

    names = {name: getattr(numpy, name) for name in dir(numpy) if not name.startswith("__")}
    copy = Copy()
    vars(copy).update(names, __version__=numpy.__version__)
    numpy_names.patch_module(copy)
    assert sorted(name for name in numpy_names.RENAMED if name not in vars(copy)) == []
    assert all(getattr(copy, name) is value for name, value in names.items())


@pytest.mark.parametrize("use", ["'%f' % w", "'%d' % w", "float(w)", "int(w)"])
def test_error_about_one_element_array_is_explained_after_traceback(run_python, use):
    done = run_python(f"import numpy as np\nw = np.zeros([1])\n{use}")
    assert done.returncode == 1
    raised, advice = done.stderr.splitlines()[-2:]
    assert raised.startswith("TypeError: ") and "`numpy<2.4`" in advice
    assert advice.startswith(
        f"tfdeploy: NumPy {numpy.__version__} does not accept an array of one element"
    )


def test_other_errors_are_not_explained(run_python):
    assert "tfdeploy:" not in run_python("import numpy as np\n'%d' % 'x'").stderr
