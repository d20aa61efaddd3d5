"""Let a program define flags that absl defines too, such as --log_dir.

The problem: programs of 2016 to 2018 define such flags. Since absl defines them, the definition
fails: "DuplicateFlagError: The flag 'log_dir' is defined twice".
"""

from __future__ import annotations

from typing import Any

_ABSL_FLAGS = (
    "log_dir",
    "verbosity",
    "alsologtostderr",
    "logtostderr",
    "stderrthreshold",
    "pdb",
    "profile_file",
)


def patch_module(app_module: Any) -> None:
    """Allow programs to redefine the flags of absl. tensorflow.python.platform.app has just been
    imported, and with it the modules of absl that define flags."""
    from absl.flags import FLAGS

    for name in _ABSL_FLAGS:
        if name in FLAGS:
            FLAGS[name].allow_override = True
