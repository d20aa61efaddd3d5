"""Restore names that NumPy dropped, with their old meaning.

NumPy 1.24 and 2.0 removed names such as `np.float` and `np.product`. Programs from 2016 to 2022 use
them, and TensorFlow 2.21 needs NumPy 1.26 or later. Nearly every name was an alias of a function or
type that NumPy or Python still has. Source: NumPy's release notes 1.18, 1.23, 1.24, 2.0 and 2.4.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any, Dict

from .. import task

# Name that NumPy 1.18 to 2.4 dropped -> the present name of the same object in NumPy or Python, or
# "" if _functions defines the object.
_RENAMED = """
    Inf=inf Infinity=inf NAN=nan NINF= NaN=nan PINF=inf alltrue=all asfarray= asscalar=
    bool=builtins.bool bool8=bool_ complex=builtins.complex complex_=complex128 cumproduct=cumprod
    float=builtins.float float_=float64 in1d= infty=inf int=builtins.int int0=intp long=builtins.int
    mat=asmatrix msort= object=builtins.object product=prod rank=ndim round_=round sometrue=any
    str=builtins.str string_=bytes_ trapz=trapezoid unicode=builtins.str unicode_=str_
"""
RENAMED = {old: same for old, _, same in (pair.partition("=") for pair in _RENAMED.split())}
# Texts of the errors of NumPy 2.4 when "%f", "%d", float() or int() gets an array of one element.
# Earlier versions converted such an array to a number.
_NO_NUMBER = (
    "only 0-dimensional arrays can be converted to Python scalars",
    "real number is required, not numpy.ndarray",
)


def patch_module(numpy: Any) -> None:
    """Add the missing names to the module numpy."""
    functions = _make_functions(numpy)
    for name, same in RENAMED.items():
        # hasattr() is not used, because NumPy would print a warning.
        if name not in vars(numpy):
            kind, _, plain = same.rpartition(".")
            value = functions.get(name) or getattr(builtins if kind else numpy, plain, None)
            if value is not None:
                setattr(numpy, name, value)
    _install_advice_hook(numpy.__version__)


def _make_functions(numpy: Any) -> Dict[str, Any]:
    return {
        "NINF": -numpy.inf,
        "asfarray": lambda a, dtype=float: numpy.asarray(a, dtype=dtype),
        "asscalar": lambda a: a.item(),
        "in1d": lambda ar1, ar2, *args, **kwargs: numpy.isin(
            numpy.ravel(ar1), ar2, *args, **kwargs
        ),
        "msort": lambda a: numpy.sort(a, axis=0),
    }


def _install_advice_hook(version: str) -> None:
    """Install an excepthook that prints advice if one of the errors in _NO_NUMBER ends the program.

    The advice is printed below the traceback."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        before(kind, error, trace)
        if isinstance(error, TypeError) and any(text in str(error) for text in _NO_NUMBER):
            task.print_once(
                "NumPy %s does not accept an array of one element as a number; before 2.4 it did: "
                "write `numpy<2.4` into the requirements of `setup`" % version
            )

    sys.excepthook = hook
