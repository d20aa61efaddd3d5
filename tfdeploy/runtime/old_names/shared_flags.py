"""Let a program define flags that absl defines too, such as --log_dir.

The problem: absl now defines flags that programs of 2016 to 2018 define themselves. So the
definition in the program fails: "DuplicateFlagError: The flag 'log_dir' is defined twice".
"""

from __future__ import annotations

from typing import Any


def patch_module(app_module: Any) -> None:
    """Allow programs to redefine the flags of absl. `app_module`: tensorflow.python.platform.app,
    whose import has also imported the modules of absl that define flags."""
    from absl.flags import FLAGS

    by_module = FLAGS.flags_by_module_dict()
    for flag in by_module["absl.logging"] + by_module["absl.app"]:
        flag.allow_override = True
