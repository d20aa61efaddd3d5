"""Start tfdeploy's runtime as the first Python code of a task, then run the host's sitecustomize.

The folder of this file is the first folder of PYTHONPATH. So the user's command does not change,
and the runtime also starts inside `bash train.sh` and in processes that the program starts. Without
TFDEPLOY_TASK_RUN_ID, or in a Python older than 3.8, this module only runs the host's sitecustomize.
This module must not import a slow module, add to the program's sys.path, or fail. It has no
annotations, because a Python 2 interpreter must be able to parse this file.
"""

import os
import sys


def _start_runtime(site_folder):
    # type: (str) -> None
    if not os.environ.get("TFDEPLOY_TASK_RUN_ID") or sys.version_info < (3, 8):
        return
    package = type(sys)("_tfdeploy_runtime")
    package.__path__ = [os.path.dirname(site_folder)]
    sys.modules["_tfdeploy_runtime"] = package
    from _tfdeploy_runtime import hooks  # type: ignore[import-not-found]

    hooks.install()


def _import_next_sitecustomize(site_folder):
    # type: (str) -> None
    """Import the sitecustomize that Python would import without tfdeploy. Errors of that module are
    not caught."""
    ours = sys.modules.pop(__name__)
    positions = [at for at, entry in enumerate(sys.path) if os.path.realpath(entry) == site_folder]
    for at in reversed(positions):
        del sys.path[at]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, ours)
        for at in positions:
            sys.path.insert(at, site_folder)


_HERE = os.path.dirname(os.path.realpath(__file__))
try:
    _start_runtime(_HERE)
except Exception as _error:  # noqa: BLE001 the user's program must start after any error
    sys.stderr.write(
        "tfdeploy: tfdeploy's runtime is not in effect: %s: %s\n" % (type(_error).__name__, _error)
    )
_import_next_sitecustomize(_HERE)
