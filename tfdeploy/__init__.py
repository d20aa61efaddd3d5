"""tfdeploy: TensorFlow clusters over plain SSH.

The Python API is `Inventory`, `Job`, `plan`, `launch` and `Run`: docs/api.md describes it.

Hosts get a copy of this file too, with the agent and the runtime. So the file uses only the syntax
of Python 3.8, and imports the API only when it is used.
"""

__version__ = "0.1.0"
__all__ = ["Inventory", "Job", "Run", "launch", "plan"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfdeploy.api import Inventory, Job, Run, launch, plan


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError("module 'tfdeploy' has no attribute %r" % name)
    from tfdeploy import api

    return getattr(api, name)


def __dir__() -> "list[str]":
    return sorted([*globals(), *__all__])
